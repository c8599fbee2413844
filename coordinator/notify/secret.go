package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// secretPrefix marks secrets, so that secret scanners find them.
const secretPrefix = "whsec_"

// Limits of a key's length.
const (
	minKeyBytes = 24
	maxKeyBytes = 64
)

// Secret is the key that signs requests. Its formatted value is redacted. The zero
// Secret signs nothing.
type Secret struct{ key []byte }

// ParseSecret parses whsec_ followed by 24 to 64 bytes in base64, and ignores white
// space around it. Its error never contains the text.
func ParseSecret(text string) (Secret, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), secretPrefix)
	if !ok {
		return Secret{}, errors.New(`invalid secret: must start with whsec_; create one with: echo "whsec_$(head -c 32 /dev/urandom | base64)"`)
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return Secret{}, errors.New("invalid secret: must be base64 after whsec_")
	}
	if len(key) < minKeyBytes || len(key) > maxKeyBytes {
		return Secret{}, fmt.Errorf("invalid secret of %d bytes: must be from %d to %d bytes", len(key), minKeyBytes, maxKeyBytes)
	}
	return Secret{key: key}, nil
}

// String implements fmt.Stringer for %v and slog.
func (s Secret) String() string {
	if s.key == nil {
		return "[none]"
	}
	return "[redacted]"
}

// GoString implements fmt.GoStringer for %#v.
func (s Secret) GoString() string { return s.String() }

// sign returns the value of the header webhook-signature: HMAC-SHA256 over
// id.timestamp.body, with the timestamp in Unix seconds (Standard Webhooks 1.0).
func (s Secret) sign(id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
