package dtaskd

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/internal/tlsconf"
)

// setupOf returns flags of init or join for a data directory that does not exist.
func setupOf(dir string, more ...string) []string {
	return append([]string{"--advertise", "127.0.0.1:7460", "--http", "", "--data-dir", dir}, more...)
}

func TestInvalidFlagsOfInitAndJoinLeaveNoDataDirectory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--advertise", ""}, "--advertise is required"},
		{[]string{"--advertise", "0.0.0.0:7460"}, "others can't connect to 0.0.0.0"},
		{[]string{"--listen", "7460"}, `invalid --listen "7460": must be HOST:PORT`},
		{[]string{"--http", "7461"}, `invalid --http "7461": must be HOST:PORT`},
		{[]string{"--log-store", "tape"}, `invalid --log-store: unknown log store "tape": must be bolt or wal`},
		{[]string{"--log-level", "loud"}, `invalid --log-level "loud": must be`},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		var stderr bytes.Buffer
		code := run(t.Context(), append([]string{"init"}, setupOf(dir, c.args...)...), io.Discard, &stderr)
		if code != program.ExitUsage || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%q: code %d, %q, want %q", c.args, code, stderr.String(), c.want)
		}
		wantMissing(t, dir)
	}
}

func TestADataDirectoryWithATooLongPathIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", maxSocketPath))
	var stderr bytes.Buffer
	code := run(t.Context(), append([]string{"init"}, setupOf(dir)...), io.Discard, &stderr)
	if code != program.ExitUsage || !strings.Contains(stderr.String(), "is too long") {
		t.Errorf("code %d, %q", code, stderr.String())
	}
	wantMissing(t, dir)
}

func TestInitOnAPortInUseLeavesNoDataDirectory(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, flag := range []string{"--listen", "--http"} {
		dir := filepath.Join(t.TempDir(), "data")
		args := setupOf(dir, "--listen", "127.0.0.1:0", flag, l.Addr().String())
		var stderr bytes.Buffer
		code := run(t.Context(), append([]string{"init"}, args...), io.Discard, &stderr)
		if code != program.ExitFailed || !strings.Contains(stderr.String(), flag+": listen tcp") {
			t.Errorf("%s: code %d, %q", flag, code, stderr.String())
		}
		wantMissing(t, dir)
	}
}

func TestACoordinatorOnLoopbackListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	for advertise, want := range map[string]string{"127.0.0.1:7460": "127.0.0.1:7460", "m1:7460": ":7460"} {
		s := setupFlags{advertise: advertise, dataDir: filepath.Join(t.TempDir(), "data"), logLevel: "warn"}
		if err := s.check(); err != nil || s.listen != want {
			t.Errorf("%s: listens on %q, %v, want %q", advertise, s.listen, err, want)
		}
	}
}

// A data directory may be the root of a file system.
func TestLostAndFoundIsNoData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, lostAndFound), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := checkEmpty(dir); err != nil {
		t.Error(err)
	}
	s := setupFlags{dataDir: dir, existed: true}
	if err := s.remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, lostAndFound)); err != nil {
		t.Errorf("a failure removed it: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkEmpty(dir); err == nil {
		t.Error("a directory with a file is empty")
	}
}

// What a cluster issued is never overwritten: neither by another init or join, nor by one of
// another cluster.
func TestADirectoryWithStateIsRefusedWithTheRemedyAndKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := issueFirst(filepath.Join(dir, tlsDir), tlsconf.NewClusterID(), "n1", []string{"m1"}); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	j := &auth.JoinString{ClusterID: tlsconf.NewClusterID(), ID: 1, Purpose: auth.JoinCoordinator, Addresses: []string{"127.0.0.1:1"}}
	text, err := j.Text()
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"init"}, {"join", text.Reveal()}} {
		var stderr bytes.Buffer
		code := run(t.Context(), append(command, setupOf(dir)...), io.Discard, &stderr)
		want := "is not empty: it has the data of a coordinator, or other files; start that coordinator with dtaskd --config " + filepath.Join(dir, settingsFile) + ", or choose another directory"
		if code != program.ExitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: code %d, %q", command[0], code, stderr.String())
		}
	}
	if after := tree(t, dir); after != before {
		t.Errorf("the directory had %s and has %s", before, after)
	}
}

// Of two commands that begin at the same time, the second neither uses nor removes what the
// first one has created so far.
func TestADirectoryThatAnotherSetupFillsIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	first, second := setupFlags{dataDir: dir}, setupFlags{dataDir: dir}
	first.listen, second.listen = "127.0.0.1:0", "127.0.0.1:0"
	made := filepath.Join(dir, settingsFile)
	err := first.create(t.Context(), func() error {
		if err := os.WriteFile(made, nil, 0o600); err != nil {
			return err
		}
		err := second.create(t.Context(), func() error {
			t.Error("the second one fills it, too")
			return errors.New("failed")
		})
		if _, usage := errors.AsType[*program.UsageError](err); !usage || !strings.Contains(err.Error(), "is used by another dtaskd init or join") {
			t.Errorf("got %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	err = second.create(t.Context(), func() error { return errors.New("the second one fills it") })
	if err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("after the first one: got %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != settingsFile {
		t.Errorf("it has %v, %v", entries, err)
	}
}

// tree returns the files below a directory, with their contents.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var files strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path) //nolint:gosec // a file of this test
		_, _ = fmt.Fprintf(&files, "%s %x\n", path, sha256.Sum256(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files.String()
}

func TestFilesThatAreNoCertificateAndKeyEndTheStartWith2(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(dir, cert, key string) error
		want  string
	}{
		"of another": {func(dir, _, key string) error {
			if err := issueFirst(filepath.Join(dir, "other"), tlsconf.NewClusterID(), "n1", nil); err != nil {
				return err
			}
			return os.Rename(filepath.Join(dir, "other", tlsconf.KeyFile), key)
		}, "belongs to another key"},
		"empty":           {func(_, cert, _ string) error { return os.Truncate(cert, 0) }, "is empty"},
		"half written":    {func(_, _, key string) error { return os.Truncate(key, 100) }, "half written"},
		"readable by all": {func(_, _, key string) error { return os.Chmod(key, 0o644) }, "mode 0644, so every user of this machine can use it: run chmod 600 "},
		"directory":       {func(_, cert, _ string) error { return errors.Join(os.Remove(cert), os.Mkdir(cert, 0o700)) }, "it is a directory, and must be a file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			certs := filepath.Join(dir, tlsDir)
			if err := issueFirst(certs, tlsconf.NewClusterID(), "n1", nil); err != nil {
				t.Fatal(err)
			}
			if err := c.spoil(dir, filepath.Join(certs, tlsconf.CertFile), filepath.Join(certs, tlsconf.KeyFile)); err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			code := run(t.Context(), []string{"--id", "n1", "--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--tls-dir", certs}, io.Discard, &stderr)
			if code != program.ExitUsage || !strings.Contains(stderr.String(), c.want) || !strings.Contains(stderr.String(), certs) {
				t.Errorf("code %d, %q, want %q", code, stderr.String(), c.want)
			}
			wantMissing(t, filepath.Join(dir, "data"))
		})
	}
}

func TestJoinSaysHowManyArgumentsItGot(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"join", "dtj1-a", "b"}, io.Discard, &stderr)
	if code != program.ExitUsage || !strings.Contains(stderr.String(), "got 2 arguments") {
		t.Errorf("code %d, %q", code, stderr.String())
	}
}

func wantMissing(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", dir, err)
	}
}
