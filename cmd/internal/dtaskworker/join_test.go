package dtaskworker

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/program"
)

// joinText returns a join string that leads nowhere.
func joinText(t *testing.T, purpose auth.Purpose) string {
	t.Helper()
	j := &auth.JoinString{ClusterID: strings.Repeat("0f", 16), ID: 1, Secret: auth.NewJoinSecret(), Purpose: purpose, Addresses: []string{"127.0.0.1:1"}}
	text, err := j.Text()
	if err != nil {
		t.Fatal(err)
	}
	return text.Reveal()
}

func TestAJoinStringIsReadFromTheFlagAFileOrStandardInput(t *testing.T) {
	t.Parallel()
	text := joinText(t, auth.JoinWorker)
	file := filepath.Join(t.TempDir(), "w.join")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, join := range []string{text, "@" + file, "-"} {
		s := settings{}
		s.worker.Join = []string{join}
		if err := s.readJoin(strings.NewReader(" " + text + "\n")); err != nil || s.worker.JoinString.Reveal() != text || len(s.worker.Join) > 0 {
			t.Errorf("%.5s: got %v, %v", join, s.worker.Join, err)
		}
	}
	s := settings{}
	s.worker.Join = []string{"127.0.0.1:1", "n2:1"}
	if err := s.readJoin(nil); err != nil || s.worker.JoinString != "" || len(s.worker.Join) != 2 {
		t.Errorf("addresses: got %v, %v", s.worker.Join, err)
	}
}

func TestFaultsOfAJoinStringHaveTheirExitCodesAndDoNotPrintIt(t *testing.T) {
	t.Parallel()
	text := joinText(t, auth.JoinWorker)
	for name, test := range map[string]struct {
		join string
		code int
		want string
	}{
		"cut":             {text[:len(text)-3], program.ExitUsage, "damaged join string"},
		"mistyped":        {text[:60] + "!" + text[61:], program.ExitUsage, "damaged join string"},
		"another purpose": {joinText(t, auth.JoinUser), program.ExitRefused, "is for a user"},
		"two":             {text + "," + text, program.ExitUsage, "must be alone"},
		"missing file":    {"@" + filepath.Join(t.TempDir(), "x"), program.ExitUsage, "reading --join: "},
		"without begin":   {text[5:], program.ExitUsage, "must be HOST:PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			code := run([]string{"--join", test.join, "--name", "w", "--work-dir", t.TempDir()}, &stdout, &stderr)
			if code != test.code || !strings.Contains(stderr.String(), test.want) {
				t.Errorf("exit %d, %q; want %d and %q", code, stderr.String(), test.code, test.want)
			}
			if strings.Contains(stderr.String(), text[90:120]) || stdout.Len() > 0 {
				t.Errorf("the secret is printed: %s", stderr.String())
			}
		})
	}
}

// The log begins with all settings.
func TestTheLogOfAWorkerHasNoJoinString(t *testing.T) {
	t.Parallel()
	text := joinText(t, auth.JoinWorker)
	file := filepath.Join(t.TempDir(), "w.join")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, join := range []string{text, "@" + file} {
		cmd, log := startProgramUntil(t, "cluster not joined yet", "--join", join, "--name", "w", "--work-dir", t.TempDir())
		if strings.Contains(log, text[90:120]) {
			t.Errorf("the secret is logged: %s", log)
		}
		if join != text && strings.Contains(strings.Join(cmd.Args, " "), text[90:120]) {
			t.Error("the secret is in the list of processes")
		}
		if err := errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()); err != nil {
			t.Error(err)
		}
	}
}
