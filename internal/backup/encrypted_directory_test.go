package backup

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func recipients(t *testing.T, public ...string) Recipients {
	t.Helper()
	to, err := ParseRecipients(public)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func contentsOf(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Those who add to the directory have only the public keys: each run opens it again, and
// continues the history without reading it.
func TestAnEncryptedDirectoryIsContinuedWithoutItsSecretKey(t *testing.T) {
	t.Parallel()
	for name, hybrid := range map[string]bool{"X25519": false, "hybrid": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := t.TempDir()
			public, secret := keys(t, hybrid)
			second, secondSecret := keys(t, hybrid)
			for _, run := range []struct {
				index uint64
				left  []uint64
			}{{10, []uint64{4, 5}}, {20, nil}, {30, []uint64{25}}} {
				added, err := addedEncrypted(opened(t, path), recipients(t, public, second), "c1", run.index, nil, run.left...)
				if err != nil || !added.Encrypted {
					t.Fatalf("at %d: %+v, %v", run.index, added, err)
				}
			}
			wantNames(t, path, NewSegment(0, 10).Name, NewSegment(10, 30).Name, NewStateFile(10).Name, NewStateFile(20).Name, NewStateFile(30).Name)
			for name, want := range map[string]Manifest{
				NewSegment(0, 10).Name:  {Index: 10},
				NewSegment(10, 30).Name: {Index: 30, HistoryAfter: 10},
				NewStateFile(20).Name:   {Index: 20, HistoryTo: 10},
				NewStateFile(30).Name:   {Index: 30, HistoryTo: 30},
			} {
				h, err := ReadHead(filepath.Join(path, name))
				if err != nil || !h.Encrypted || h.ClusterID != "c1" || h.Index != want.Index || h.HistoryAfter != want.HistoryAfter || h.HistoryTo != want.HistoryTo {
					t.Errorf("%s: got %+v, %v", name, h, err)
				}
				contents := contentsOf(t, filepath.Join(path, name))
				if !bytes.HasPrefix(contents, []byte(encryptedMagic)) || bytes.Contains(contents, make([]byte, 64)) {
					t.Errorf("%s has plain text", name)
				}
				for _, file := range []string{secret, secondSecret} {
					plain, err := decrypted(t, contents, file)
					if err != nil {
						t.Fatal(err)
					}
					r, err := NewReader(bytes.NewReader(plain))
					if err != nil || r.Manifest().Index != want.Index || r.Manifest().HistoryTo != want.HistoryTo {
						t.Errorf("%s: got %+v, %v", name, r.Manifest(), err)
					}
					if _, err := r.Finish(nil); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
		})
	}
}

// What is written before it is split is as secret as the result, and is left behind by a
// process that is killed.
func TestTheTemporaryFileOfAnEncryptedBackupIsEncrypted(t *testing.T) {
	t.Parallel()
	public, _ := keys(t, false)
	path := t.TempDir()
	whole, err := opened(t, path).Create(recipients(t, public))
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Discard()
	w, err := NewWriter(whole, Manifest{ClusterID: "c1", Index: 1})
	if err == nil {
		_, err = w.Write(bytes.Repeat([]byte("secret payload "), stateFrame))
	}
	if err != nil {
		t.Fatal(err)
	}
	names, err := namesIn(path)
	if err != nil || len(names) != 1 {
		t.Fatalf("got %q, %v", names, err)
	}
	contents := contentsOf(t, filepath.Join(path, names[0]))
	if !bytes.HasPrefix(contents, []byte(encryptedMagic)) || len(contents) < stateFrame || bytes.Contains(contents, []byte("secret payload")) {
		t.Errorf("the temporary file has %d bytes, %.60q", len(contents), contents)
	}
}

// A backup needs the history of those before: one key must be enough for all of them, and
// nobody may believe that plain text is encrypted.
func TestADirectoryIsEncryptedAsAWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	public, _ := keys(t, false)
	for _, encrypted := range []bool{false, true} {
		path := t.TempDir()
		first, second := Recipients(nil), recipients(t, public)
		if encrypted {
			first, second = second, first
		}
		if _, err := addedEncrypted(opened(t, path), first, "c1", 10, nil, 4); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, err := addedEncrypted(opened(t, path), second, "c1", 20, nil)
			if mixed, is := errors.AsType[*MixedError](err); !is || mixed.Encrypted != encrypted || !strings.Contains(err.Error(), "another directory") {
				t.Errorf("encrypted %t: got %v", encrypted, err)
			}
			// The same without states, which were all removed.
			if err := os.Remove(filepath.Join(path, NewStateFile(10).Name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
		wantNames(t, path, NewSegment(0, 10).Name)
	}
}

func TestAnEncryptedDirectoryBelongsToOneCluster(t *testing.T) {
	t.Parallel()
	public, _ := keys(t, false)
	path := t.TempDir()
	if _, err := addedEncrypted(opened(t, path), recipients(t, public), "c1", 10, nil); err != nil {
		t.Fatal(err)
	}
	_, err := addedEncrypted(opened(t, path), recipients(t, public), "c2", 20, nil)
	if _, other := errors.AsType[*OtherClusterError](err); !other {
		t.Errorf("got %v", err)
	}
}

// The part that everybody can read can't be changed without being found by those who have
// the key.
func TestAChangedAnnouncementIsFound(t *testing.T) {
	t.Parallel()
	public, secret := keys(t, false)
	path := t.TempDir()
	if _, err := addedEncrypted(opened(t, path), recipients(t, public), "c1", 10, nil); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(path, NewStateFile(10).Name)
	contents := contentsOf(t, file)
	at := bytes.Index(contents, []byte("-> "+announcementType+"\n"))
	if at < 0 {
		t.Fatalf("the header has no announcement: %.300q", contents)
	}
	at += len("-> " + announcementType + "\n")
	contents[at+20] ^= 'A' ^ 'B'
	if _, err := decrypted(t, contents, secret); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
}

func TestAnEncryptedFileThatAnnouncesNothingIsNoBackupOfADirectory(t *testing.T) {
	t.Parallel()
	plain, _, _ := sample(t)
	public, _ := keys(t, false)
	_, saved := savedTo(t, plain, public)
	path := t.TempDir()
	file := filepath.Join(path, NewStateFile(7).Name)
	for name, contents := range map[string][]byte{"other": contentsOf(t, saved), "cut": contentsOf(t, saved)[:40]} {
		if err := os.WriteFile(file, contents, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenDirectory(path, ownPrefix); err == nil || !strings.Contains(err.Error(), file) || !strings.HasSuffix(err.Error(), "move it away") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestATargetHasThePublicKeysOfThoseWhoCanReadIt(t *testing.T) {
	t.Parallel()
	first, _ := keys(t, false)
	second, secret := keys(t, false)
	target := TargetTo("file:///mnt/backups", []string{first, second})
	got, err := ParseTarget(target)
	if err != nil || got.Dir != "/mnt/backups" || len(got.To) != 2 {
		t.Errorf("%s: got %+v, %v", target, got, err)
	}
	if TargetTo("file:///mnt", nil) != "file:///mnt" {
		t.Error("a target without keys was changed")
	}
	_, key, _ := strings.Cut(strings.TrimSpace(string(contentsOf(t, secret))), "AGE-SECRET-KEY-")
	key = "AGE-SECRET-KEY-" + key
	hybrid, _ := keys(t, true)
	for target, want := range map[string]string{
		TargetTo("file:///mnt", []string{first, "age1wrong"}): "invalid encrypt-to: number 2 must be a public key of age",
		TargetTo("file:///mnt", []string{key}):                "that is a secret key",
		"file:///mnt?keep=3":                                  `unknown parameter "keep": only encrypt-to=PUBLIC-KEY is possible`,
		"file:///mnt?":                                        "must be file://",
		TargetTo("file:///mnt", []string{hybrid}):             "must have at most 1024 bytes, with all public keys",
	} {
		if _, err := ParseTarget(target); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), key) {
			t.Errorf("%.100s: got %v, want %s", target, err, want)
		}
	}
}
