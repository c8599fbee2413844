package record

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestACommitIsMarkedIfAnythingButTheRecordHasChanged(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(top, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=x", "-c", "user.email=x@localhost"}, args...)...)
		cmd.Dir = top
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	write("code", "1")
	write(recordFile, "")
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	inside := filepath.Join(top, "test") // tests run below the top
	clean := commitIn(t.Context(), inside)
	if clean == "unknown" || strings.HasSuffix(clean, "+") {
		t.Fatalf("got commit %q of a clean checkout", clean)
	}
	write(recordFile, "{}\n")
	if got := commitIn(t.Context(), inside); got != clean {
		t.Errorf("after a run was recorded: got commit %q, want %q", got, clean)
	}
	write("code", "2")
	if got := commitIn(t.Context(), inside); got != clean+"+" {
		t.Errorf("after a change: got commit %q, want %q", got, clean+"+")
	}
	if got := commitIn(t.Context(), t.TempDir()); got != "unknown" {
		t.Errorf("outside a checkout: got commit %q, want unknown", got)
	}
}
