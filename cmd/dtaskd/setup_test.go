package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dtask/dtask/internal/program"
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
