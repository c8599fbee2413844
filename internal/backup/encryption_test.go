package backup

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
)

// keys makes a pair of keys: the public one, and the file with the secret one.
func keys(t *testing.T, hybrid bool) (public, file string) {
	t.Helper()
	var secret string
	if hybrid {
		own, err := age.GenerateHybridIdentity()
		if err != nil {
			t.Fatal(err)
		}
		public, secret = own.Recipient().String(), own.String()
	} else {
		own, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		public, secret = own.Recipient().String(), own.String()
	}
	file = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("# public key: "+public+"\n"+secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return public, file
}

// savedTo saves a backup that is encrypted to public keys.
func savedTo(t *testing.T, plain []byte, public ...string) (Saved, string) {
	t.Helper()
	to, err := ParseRecipients(public)
	if err != nil {
		t.Fatal(err)
	}
	file, err := CreateFile(filepath.Join(t.TempDir(), "a.dtbk"), ".test-")
	if err == nil {
		defer file.Discard()
		err = file.EncryptTo(to)
	}
	for _, part := range [][]byte{[]byte("an attempt that was cut"), plain} {
		if err == nil {
			err = file.Restart()
		}
		if err == nil {
			_, err = file.Write(part)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	saved, err := file.Keep(nil)
	if err != nil {
		t.Fatal(err)
	}
	return saved, file.Path()
}

// decrypted reads a file with the identities of another one.
func decrypted(t *testing.T, contents []byte, identities string) ([]byte, error) {
	t.Helper()
	var with Identities
	if identities != "" {
		var err error
		if with, err = ReadIdentities(identities); err != nil {
			t.Fatal(err)
		}
	}
	plain, encrypted, err := Decrypt(bytes.NewReader(contents), with)
	if err != nil {
		return nil, err
	}
	if !encrypted {
		t.Error("it is not encrypted")
	}
	return io.ReadAll(plain)
}

func TestAnEncryptedBackupIsReadByItsRecipientsOnly(t *testing.T) {
	t.Parallel()
	for name, hybrid := range map[string]bool{"X25519": false, "hybrid": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain, _, m := sample(t, someJobs...)
			first, firstFile := keys(t, hybrid)
			second, secondFile := keys(t, hybrid)
			_, otherFile := keys(t, hybrid)
			saved, path := savedTo(t, plain, first, second)
			contents, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !saved.Encrypted || saved.ClusterID != m.ClusterID || saved.Totals.Jobs != 2 || saved.Totals.Bytes != uint64(len(contents)) {
				t.Errorf("got %+v, %d bytes", saved, len(contents))
			}
			if bytes.Contains(contents, []byte("cluster_id")) || bytes.Contains(contents, someJobs[2].Data) {
				t.Error("the file has plain text")
			}
			for _, file := range []string{firstFile, secondFile} {
				if got, err := decrypted(t, contents, file); err != nil || !bytes.Equal(got, plain) {
					t.Errorf("a recipient reads %d bytes, %v", len(got), err)
				}
			}
			if _, err := decrypted(t, contents, otherFile); !errors.Is(err, errOtherRecipients) {
				t.Errorf("another one: got %v", err)
			}
			if _, err := decrypted(t, contents, ""); !errors.Is(err, ErrEncrypted) {
				t.Errorf("without identities: got %v", err)
			}
		})
	}
}

func TestABackupThatIsNotEncryptedNeedsNoIdentities(t *testing.T) {
	t.Parallel()
	plain, _, _ := sample(t)
	_, file := keys(t, false)
	with, err := ReadIdentities(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, contents := range [][]byte{plain, plain[:5], nil} {
		for _, with := range []Identities{nil, with} {
			from, encrypted, err := Decrypt(bytes.NewReader(contents), with)
			if err != nil || encrypted {
				t.Fatalf("encrypted: %t, %v", encrypted, err)
			}
			if got, err := io.ReadAll(from); err != nil || !bytes.Equal(got, contents) {
				t.Errorf("read %d of %d bytes, %v", len(got), len(contents), err)
			}
		}
	}
}

func TestAnEncryptedBackupThatWasCutOrChangedIsFound(t *testing.T) {
	t.Parallel()
	plain, _, _ := sample(t, someJobs...)
	public, file := keys(t, false)
	_, path := savedTo(t, plain, public)
	contents, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, at int, contents []byte) {
		t.Helper()
		got, err := decrypted(t, contents, file)
		if err == nil {
			_, _, _, _, err = readAll(bytes.NewReader(got))
		}
		if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrTruncated) && !errors.Is(err, errOtherRecipients) {
			t.Errorf("%s at %d: got %v", what, at, err)
		}
	}
	for _, at := range []int{25, 60, 300, len(contents) / 2, len(contents) - 1} {
		check("cut", at, contents[:at])
		changed := bytes.Clone(contents)
		changed[at] ^= 1
		check("changed", at, changed)
	}
	check("longer", len(contents), append(bytes.Clone(contents), 0))
}

func TestWhatIsNoPublicKeyIsRefusedAndNotRepeated(t *testing.T) {
	t.Parallel()
	public, file := keys(t, false)
	hybrid, _ := keys(t, true)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.Split(string(text), "\n")[1]
	for _, test := range []struct {
		keys []string
		want string
	}{
		{[]string{secret}, "that is a secret key"},
		{[]string{public, "age1"}, "number 2 must be a public key"},
		{[]string{""}, "number 1 must be"},
		{[]string{public[:len(public)-1]}, "number 1 must be"},
		{[]string{public + "\n" + public}, "number 1 must be"},
		{[]string{public, hybrid}, "can't be mixed"},
	} {
		if _, err := ParseRecipients(test.keys); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: got %v", test.keys, err)
		}
	}
	if to, err := ParseRecipients(nil); err != nil || len(to) > 0 {
		t.Errorf("none: got %v, %v", to, err)
	}
	for name, contents := range map[string]string{"empty": "", "public": public, "cut": secret[:30]} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadIdentities(path); err == nil || !strings.Contains(err.Error(), path) || contents != "" && strings.Contains(err.Error(), contents) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := ReadIdentities(filepath.Join(t.TempDir(), "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("gone: got %v", err)
	}
}
