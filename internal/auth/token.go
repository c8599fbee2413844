package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"strings"
)

// A token is dtask_ID_SECRET_CRC: its public part, by which lists and logs name it, 43
// characters of base64url with 256 random bits, and a checksum over everything before,
// in 6 characters. The checksum tells a token from other text without asking a cluster,
// to secret scanners and to dtask's own errors.
const (
	tokenPrefix = "dtask_"
	secretBytes = 32
)

var tokenEncoding = base64.RawURLEncoding.Strict()

// Secret is a text that must not be printed: formatting and logging show ***.
type Secret string

// String returns ***.
func (Secret) String() string { return "***" }

// GoString returns ***.
func (Secret) GoString() string { return "***" }

// LogValue returns ***.
func (Secret) LogValue() slog.Value { return slog.StringValue("***") }

// MarshalText returns ***.
func (Secret) MarshalText() ([]byte, error) { return []byte("***"), nil }

// Reveal returns the text.
func (s Secret) Reveal() string { return string(s) }

// Token is a bearer token.
type Token struct {
	secret [secretBytes]byte
}

// NewToken makes a random token.
func NewToken() Token {
	var t Token
	_, _ = rand.Read(t.secret[:]) // never fails
	return t
}

// Text returns the token as its owner keeps it.
func (t Token) Text() Secret {
	body := tokenPrefix + t.ID() + "_" + tokenEncoding.EncodeToString(t.secret[:])
	return Secret(body + "_" + checksum(body))
}

// Hash is what the replicated state stores: the SHA-256 of the secret. The secret has 256
// random bits, so that a slow hash, which passwords need, would protect nothing.
func (t Token) Hash() [sha256.Size]byte { return sha256.Sum256(t.secret[:]) }

// ID is the public part of the token: see CredentialID.
func (t Token) ID() string { return CredentialID(t.Hash()) }

// CredentialID is how lists and logs name a credential: the first 8 hexadecimal digits of
// the hash of a token's secret, or of a public key.
func CredentialID(hash [sha256.Size]byte) string { return hex.EncodeToString(hash[:credentialIDBytes]) }

const credentialIDBytes = 4

// checksum returns the CRC-32 (IEEE) of a text in 6 characters of base64url.
func checksum(text string) string {
	sum := crc32.ChecksumIEEE([]byte(text))
	return tokenEncoding.EncodeToString([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}) //nolint:gosec // its bytes
}

var errNotToken = errors.New("not a dtask token: a token has the form dtask_ID_SECRET_CHECKSUM")

// ParseToken returns the token of a text; space around it is ignored. Errors never
// contain the text.
func ParseToken(text string) (Token, error) {
	text = strings.TrimSpace(text)
	// The secret may contain underscores: the sections before and after it have a fixed
	// form.
	if !strings.HasPrefix(text, tokenPrefix) {
		return Token{}, errNotToken
	}
	end := strings.TrimPrefix(text, tokenPrefix)
	id, rest, ok := strings.Cut(end, "_")
	const secretLen, sumLen = 43, 6
	if !ok || len(id) != 2*credentialIDBytes {
		return Token{}, errNotToken
	}
	if len(rest) != secretLen+1+sumLen || rest[secretLen] != '_' || checksum(text[:len(text)-sumLen-1]) != rest[secretLen+1:] {
		return Token{}, errors.New("damaged token: its checksum does not match, so it was cut or mistyped")
	}
	secret, err := tokenEncoding.DecodeString(rest[:secretLen])
	if err != nil || len(secret) != secretBytes {
		return Token{}, errNotToken
	}
	t := Token{secret: [secretBytes]byte(secret)}
	if t.ID() != id {
		return Token{}, errNotToken
	}
	return t, nil
}

// bearer precedes a token in the authorization header of a call, RFC 6750 §2.1.
const bearer = "Bearer "

// Header returns the value of the authorization header of calls with the token.
func (t Token) Header() string { return bearer + t.Text().Reveal() }

// ParseHeader returns the token of an authorization header.
func ParseHeader(value string) (Token, error) {
	text, ok := strings.CutPrefix(value, bearer)
	if !ok {
		return Token{}, fmt.Errorf("invalid authorization header: must be %s and a token", strings.TrimSpace(bearer))
	}
	return ParseToken(text)
}
