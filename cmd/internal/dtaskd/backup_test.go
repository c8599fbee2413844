package dtaskd

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dtask/dtask/internal/program"
)

func TestTheFlagsOfRestoreAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a.dtbk")
	if err := os.WriteFile(file, []byte("dtaskbk1"), 0o600); err != nil {
		t.Fatal(err)
	}
	valid := []string{"restore", file, "--data-dir", filepath.Join(dir, "n1"), "--id", "n1", "--address", "127.0.0.1:7460"}
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"restore"}, program.ExitUsage, "name one backup FILE"},
		{[]string{"restore", file}, program.ExitUsage, "--data-dir is required\ndtaskd: --id is required, such as n1\ndtaskd: invalid --address \"\": must be HOST:PORT"},
		{append(valid, "--at-most-once", "maybe"), program.ExitUsage, `invalid --at-most-once "maybe": must be lost or run`},
		{append(valid, "--log-store", "tape"), program.ExitUsage, `unknown log store "tape"`},
		{append(valid, "-o", "xml"), program.ExitUsage, `invalid --output "xml": must be text or json`},
		{valid, program.ExitFatal, "backup is incomplete"},
		{[]string{"backup", "verify", file}, program.ExitFatal, "backup is incomplete"},
		{[]string{"backup", "inspect", file + "x"}, program.ExitFailed, "no such file"},
		{[]string{"backup", "inspect", file, "--identity", file + "x"}, program.ExitFailed, "opening the identities: open "},
		{[]string{"backup", "verify", file, "--identity", file}, program.ExitFailed, "it must have secret keys"},
		{[]string{"backup", "inspect"}, program.ExitUsage, "name one backup FILE"},
		{[]string{"backup", "destroy"}, program.ExitUsage, `unexpected argument "destroy"`},
	} {
		var stderr bytes.Buffer
		code := run(t.Context(), test.args, io.Discard, &stderr)
		if code != test.code || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%q: code %d, %q, want %d, %q", test.args[1:], code, &stderr, test.code, test.want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}
