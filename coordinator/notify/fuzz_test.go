package notify

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// FuzzParseSecret checks that valid secrets can sign, and that no text shows them.
func FuzzParseSecret(f *testing.F) {
	for _, key := range []string{"", "short", strings.Repeat("k", minKeyBytes), strings.Repeat("k", maxKeyBytes), strings.Repeat("k", maxKeyBytes+1)} {
		f.Add(secretPrefix + base64.StdEncoding.EncodeToString([]byte(key)))
	}
	f.Add(" whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
	f.Add("whsec_====")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSecret(text)
		if err != nil {
			rest := strings.TrimPrefix(strings.TrimSpace(text), secretPrefix)
			if len(rest) > 12 && strings.Contains(err.Error(), rest) {
				t.Errorf("the error shows the secret: %v", err)
			}
			return
		}
		if n := len(s.key); n < minKeyBytes || n > maxKeyBytes {
			t.Errorf("a key of %d bytes was accepted", n)
		}
		if shown := fmt.Sprintf("%v %#v %s", s, s, s); strings.Contains(shown, string(s.key)) {
			t.Errorf("a secret is shown as %s", shown)
		}
		again, err := ParseSecret(secretPrefix + base64.StdEncoding.EncodeToString(s.key))
		if err != nil || again.sign("id", "1", []byte(text)) != s.sign("id", "1", []byte(text)) {
			t.Errorf("the same key has a different signature: %v", err)
		}
	})
}
