package tlsconf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// At the start they are refused; while the replica runs, what it has loaded stays in use.
func TestBadFilesAreRefusedWithTheirNameAndTheRemedy(t *testing.T) {
	t.Parallel()
	ca, other := newTestCA(t), newTestCA(t)
	elsewhere := t.TempDir()
	issue(t, other, elsewhere, ReplicaRequest{ServerID: "n1"})
	half := func(t *testing.T, dir, name string) string {
		t.Helper()
		text := readTestFile(t, dir, name)
		return text[:len(text)/2]
	}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		want  []string
	}{
		"missing": {func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Remove(filepath.Join(dir, KeyFile)); err != nil {
				t.Fatal(err)
			}
		}, []string{KeyFile, "no such file"}},
		"empty": {func(t *testing.T, dir string) {
			t.Helper()
			writeFile(t, filepath.Join(dir, CertFile), "\n", 0o644)
		}, []string{CertFile, "is empty"}},
		"half certificate": {func(t *testing.T, dir string) {
			t.Helper()
			writeFile(t, filepath.Join(dir, CertFile), half(t, dir, CertFile), 0o644)
		}, []string{CertFile, "half written"}},
		"half second CA": {func(t *testing.T, dir string) {
			t.Helper()
			writeFile(t, filepath.Join(dir, CAFile), readTestFile(t, dir, CAFile)+half(t, dir, CAFile), 0o644)
		}, []string{CAFile, "half written"}},
		"half key": {func(t *testing.T, dir string) {
			t.Helper()
			writeFile(t, filepath.Join(dir, KeyFile), half(t, dir, KeyFile), 0o600)
		}, []string{KeyFile, "half written"}},
		"key of another": {func(t *testing.T, dir string) {
			t.Helper()
			writeFile(t, filepath.Join(dir, KeyFile), readTestFile(t, elsewhere, KeyFile), 0o600)
		}, []string{CertFile, "belongs to another key", KeyFile}},
		"CA of another": {func(t *testing.T, dir string) {
			t.Helper()
			writeFile(t, filepath.Join(dir, CAFile), readTestFile(t, elsewhere, CAFile), 0o644)
		}, []string{CertFile, "not issued", CAFile}},
		"directory": {func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Remove(filepath.Join(dir, CertFile)); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, CertFile), 0o700); err != nil {
				t.Fatal(err)
			}
		}, []string{CertFile, "it is a directory"}},
		"key instead of certificate": {func(t *testing.T, dir string) {
			t.Helper()
			writeFile(t, filepath.Join(dir, CertFile), readTestFile(t, dir, KeyFile), 0o600)
		}, []string{CertFile, "no certificate"}},
		"readable by all": {func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Chmod(filepath.Join(dir, KeyFile), 0o644); err != nil { //nolint:gosec // what is refused
				t.Fatal(err)
			}
		}, []string{KeyFile, "mode 0644", "chmod 600"}},
		"writable by the group": {func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Chmod(filepath.Join(dir, KeyFile), 0o660); err != nil { //nolint:gosec // what is refused
				t.Fatal(err)
			}
		}, []string{KeyFile, "mode 0660", "its group"}},
		"huge": {func(t *testing.T, dir string) {
			t.Helper()
			writeFile(t, filepath.Join(dir, CAFile), strings.Repeat("x", maxFile+1), 0o644)
		}, []string{CAFile, "more than"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			issue(t, ca, dir, ReplicaRequest{ServerID: "n1"})
			var checked error
			w, err := NewWatcher(WatcherConfig{Dir: dir, Checked: func(err error) { checked = err }})
			if err != nil {
				t.Fatal(err)
			}
			first := w.Current()
			c.spoil(t, dir)
			_, err = LoadReplica(dir)
			wantError(t, err, append(c.want, dir)...)
			w.Check()
			wantError(t, checked, append(c.want, dir)...)
			if w.Current() != first || w.Failures() != 1 {
				t.Errorf("the old files are not in use, or it is not counted: %d failures", w.Failures())
			}
		})
	}
}

// Kubernetes mounts secrets with mode 0640 and the group of the pod.
func TestAKeyThatItsGroupCanReadIsAcceptedFromRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	issue(t, newTestCA(t), dir, ReplicaRequest{ServerID: "n1"})
	if err := os.Chmod(filepath.Join(dir, KeyFile), 0o640); err != nil { //nolint:gosec // what is tested
		t.Fatal(err)
	}
	_, err := LoadReplica(dir)
	if os.Getuid() == 0 {
		if err != nil {
			t.Error(err)
		}
	} else {
		wantError(t, err, "its group")
	}
}

func TestACertificateIsNotWrittenOverThatOfAnotherReplica(t *testing.T) {
	t.Parallel()
	ca, dir := newTestCA(t), t.TempDir()
	issue(t, ca, dir, ReplicaRequest{ServerID: "n1"})
	issue(t, ca, dir, ReplicaRequest{ServerID: "n1"}) // renewed
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.IssueReplica(ReplicaRequest{ServerID: "n2", Key: key.Public()}, testNow)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, Save(dir, cert, key, ca.Cert), "not of replica n2")
}

func TestTheKeyOfAWorkerIsCreatedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hashes := make(chan [32]byte, 8) // one for each goroutine
	for range cap(hashes) {
		go func() {
			pair, err := OpenWorkerKey(dir)
			if err != nil {
				t.Error(err)
				hashes <- [32]byte{}
				return
			}
			hashes <- KeyHash(parsed(t, pair))
		}()
	}
	first := <-hashes
	for range cap(hashes) - 1 {
		if <-hashes != first {
			t.Error("two processes have different keys")
		}
	}
	path := filepath.Join(dir, WorkerKeyFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("the directory has %v, %v", files, err)
	}
	text := readTestFile(t, dir, WorkerKeyFile)
	writeFile(t, path, text[:len(text)/2], 0o600)
	_, err = OpenWorkerKey(dir)
	wantError(t, err, path, "half written")
	writeFile(t, path, text, 0o644)
	_, err = OpenWorkerKey(dir)
	wantError(t, err, path, "mode 0644")
}

func TestARenewedCertificateKeepsItsKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, err := NewCA(NewClusterID(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var hashes [2][32]byte
	for i := range hashes {
		key, err := OpenKey(dir)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := ca.IssueReplica(ReplicaRequest{ServerID: "n1", Key: key.Public()}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := Save(dir, cert, key, ca.Cert); err != nil {
			t.Fatal(err)
		}
		hashes[i] = KeyHash(cert)
	}
	if hashes[0] != hashes[1] {
		t.Error("the key has changed")
	}
	if err := os.Chmod(filepath.Join(dir, KeyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKey(dir); err == nil {
		t.Error("a key that everyone can read is used again")
	}
}
