package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

// A backup that was cut on the way, or that the disk did not store, must not look like one.
func TestAnIncompleteBackupGetsNoName(t *testing.T) {
	t.Parallel()
	leader := newFakeLeader()
	leader.cutBackup = 10
	addr, done, err := leader.serve()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	dir := t.TempDir()
	var stderr bytes.Buffer
	a := &app{dir: dir, output: output{
		in: strings.NewReader(""), out: &bytes.Buffer{}, err: &stderr, getenv: func(string) string { return "" }, now: time.Now,
	}}
	code := run(t.Context(), []string{"--addr", addr, "backup", "save", "a.dtbk"}, a)
	if code != exitFailed || !strings.Contains(stderr.String(), "backup is incomplete") {
		t.Errorf("got exit code %d, %s", code, &stderr)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
