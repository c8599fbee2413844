package notify

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestASignatureMatchesTheKnownVector(t *testing.T) {
	t.Parallel()
	// The example of Standard Webhooks 1.0.
	s, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
	if err != nil {
		t.Fatal(err)
	}
	got := s.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// referenceHMAC is HMAC-SHA256 as RFC 2104 defines it, for keys of up to 64 bytes.
func referenceHMAC(key, text []byte) []byte {
	pad := func(b byte) []byte {
		p := bytes.Repeat([]byte{b}, 64)
		for i, k := range key {
			p[i] ^= k
		}
		return p
	}
	inner := sha256.Sum256(append(pad(0x36), text...))
	outer := sha256.Sum256(append(pad(0x5c), inner[:]...))
	return outer[:]
}

// A receiver on a real network verifies the signature with its own implementation.
func TestAReceiverCanVerifyTheSignature(t *testing.T) {
	t.Parallel()
	key := []byte("0123456789abcdefghijklmnopqrstuv")
	secret, err := ParseSecret("whsec_" + base64.StdEncoding.EncodeToString(key))
	if err != nil {
		t.Fatal(err)
	}
	var box inbox
	arrived := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		box.take(r)
		arrived <- struct{}{}
	}))
	defer server.Close()
	c := newCluster(t)
	c.end(server.URL + "/ended")
	at := time.Unix(1_700_000_000, 5e8)
	c.lead(nil, func(cfg *Config) {
		cfg.Hooks.Secret, cfg.Addresses = secret, allow("127.0.0.0/8")
		cfg.Wall = func() time.Time { return at }
	})
	<-arrived
	got := box.all()[0]
	stamp := got.header.Get("webhook-timestamp")
	if stamp != strconv.FormatInt(at.Unix(), 10) {
		t.Errorf("timestamp is %q, want %d", stamp, at.Unix())
	}
	want := "v1," + base64.StdEncoding.EncodeToString(referenceHMAC(key, []byte(got.id+"."+stamp+"."+got.body)))
	if sig := got.header.Get("webhook-signature"); sig != want {
		t.Errorf("signature is %q, want %q", sig, want)
	}
}

func TestASecretIsParsedAndNeverShown(t *testing.T) {
	t.Parallel()
	secretOf := func(n int) string { return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for text, want := range map[string]string{
		"":                        "must start with whsec_",
		"correct horse battery":   "must start with whsec_",
		"whsec_":                  "secret of 0 bytes",
		"whsec_correct!":          "must be base64",
		secretOf(23):              "secret of 23 bytes",
		secretOf(65):              "secret of 65 bytes",
		secretOf(24):              "",
		" " + secretOf(64) + "\n": "",
	} {
		s, err := ParseSecret(text)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: error %v, want %q", text, err, want)
		case err != nil && strings.Contains(err.Error(), "correct"):
			t.Errorf("the error shows the secret: %v", err)
		case err == nil:
			var log bytes.Buffer
			slog.New(slog.NewTextHandler(&log, nil)).Info("started", "secret", s)
			shown := fmt.Sprintf("%v %+v %#v %s", s, s, s, log.String())
			if strings.Count(shown, "[redacted]") != 4 || strings.Contains(shown, "key") {
				t.Errorf("a secret is shown as %s", shown)
			}
		}
	}
}
