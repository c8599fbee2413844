//go:build linux

package deploy

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// secrets are texts that must not occur, by what they are.
type secrets map[string][]byte

func (s secrets) add(what string, text []byte) { s[what] = text }

// addJoinStrings adds the texts of join strings, and the secrets in them.
func (s secrets) addJoinStrings(t *testing.T, texts []string) {
	t.Helper()
	for i, text := range texts {
		s.add("join string "+string(rune('1'+i)), []byte(text))
		parsed, err := auth.ParseJoinString(text, auth.Purpose(i+1))
		clustertest.Must(t, err)
		s.add("secret of join string "+string(rune('1'+i)), parsed.Secret[:])
	}
}

// addToken adds the text of a token, and the secret in it in each form.
func (s secrets) addToken(t *testing.T, text string) {
	t.Helper()
	_, err := auth.ParseToken(text)
	clustertest.Must(t, err)
	const secret, checksum = 43, 7
	encoded := text[len(text)-checksum-secret : len(text)-checksum]
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	clustertest.Must(t, err)
	name := "token " + strings.Split(text, "_")[1]
	s.add(name, []byte(text))
	s.add("secret of "+name, []byte(encoded))
	s.add("bytes of "+name, raw)
}

// addKey adds the private key of a file in PEM.
func (s secrets) addKey(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	clustertest.Must(t, err)
	found := false
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if !strings.Contains(block.Type, "PRIVATE KEY") {
			continue
		}
		found = true
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			key, err = x509.ParseECPrivateKey(block.Bytes)
		}
		clustertest.Must(t, err)
		private, ok := key.(*ecdsa.PrivateKey)
		if !ok {
			t.Fatalf("%s has a key of type %T", path, key)
		}
		number, err := private.Bytes()
		clustertest.Must(t, err)
		s.add("key of "+path, number)
		// The lines of the file but the first, which only names the curve.
		lines := strings.Split(string(pem.EncodeToMemory(block)), "\n")
		s.add("text of "+path, []byte(lines[2]))
	}
	if !found {
		t.Fatalf("%s has no private key", path)
	}
}

// in lists the secrets that data contain.
func (s secrets) in(data []byte) (found []string) {
	for what, text := range s {
		if bytes.Contains(data, text) {
			found = append(found, what)
		}
	}
	slices.Sort(found)
	return found
}

// wantIn checks that data contain none of the secrets, except some.
func (s secrets) wantIn(t *testing.T, where string, data []byte, except ...string) {
	t.Helper()
	for _, what := range s.in(data) {
		if !slices.Contains(except, what) {
			t.Errorf("%s: contains %s", where, what)
		}
	}
}

// wantInFiles checks that the files below a directory contain no secrets but their own,
// which are named by path below the directory. It returns how many files it has read.
func (s secrets) wantInFiles(t *testing.T, dir string, own map[string][]string) (files int) {
	t.Helper()
	clustertest.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // temporary
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		below, _ := filepath.Rel(dir, path)
		s.wantIn(t, path, data, own[below]...)
		if len(own[below]) > 0 && len(s.in(data)) == 0 {
			t.Errorf("%s: has none of %v: the check finds nothing", path, own[below])
		}
		files++
		return err
	}))
	return files
}
