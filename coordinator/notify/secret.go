package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// secretPrefix marks a secret wherever it turns up, so that scanners find it.
const secretPrefix = "whsec_"

// Bounds of a key, in bytes.
const (
	minKey = 24
	maxKey = 64
)

// Secret is the key that signs requests. It never shows itself in logs. The zero
// Secret signs nothing.
type Secret struct{ key []byte }

// ParseSecret reads whsec_ followed by 24 to 64 bytes in base64; white space
// around it is ignored. Its error says what to write, and never shows the text.
func ParseSecret(text string) (Secret, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), secretPrefix)
	if !ok {
		return Secret{}, errors.New(`a secret begins with whsec_; make one with: echo "whsec_$(head -c 32 /dev/urandom | base64)"`)
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return Secret{}, errors.New("what follows whsec_ is no base64")
	}
	if len(key) < minKey || len(key) > maxKey {
		return Secret{}, fmt.Errorf("the secret has %d bytes; it must have %d to %d", len(key), minKey, maxKey)
	}
	return Secret{key: key}, nil
}

// String hides the key, also from %v and slog.
func (s Secret) String() string {
	if s.key == nil {
		return "[none]"
	}
	return "[redacted]"
}

// GoString hides the key from %#v.
func (s Secret) GoString() string { return s.String() }

// sign gives the value of the header webhook-signature: HMAC-SHA256 over
// id.timestamp.body, the timestamp being seconds since 1970, as the Standard Webhooks convention has it.
func (s Secret) sign(id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
