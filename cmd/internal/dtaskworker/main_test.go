package dtaskworker

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dtask/dtask/internal/buildinfo"
	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/worker/process"
)

// asProgram makes the test binary the program.
const asProgram = "DTASK_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	process.RunSupervisor()
	if os.Getenv(asProgram) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func TestUsageErrorsExitWith2(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, noSlots := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "none.yaml")
	if err := errors.Join(os.WriteFile(file, []byte("slotz: 3\n"), 0o600), os.WriteFile(noSlots, []byte("slots: 0\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no join":        {nil, "--join"},
		"bad join":       {[]string{"--join", "nowhere"}, "must be HOST:PORT"},
		"far join":       {[]string{"--join", "127.0.0.1:1,10.0.0.1:7460"}, `invalid --join "10.0.0.1:7460": must be a loopback address`},
		"bad name":       {[]string{"--join", "a:1", "--name", "a b"}, "--name"},
		"bad slots":      {[]string{"--join", "a:1", "--slots", "-1"}, "--slots"},
		"no slots":       {[]string{"--join", "a:1", "--slots", "0"}, "invalid --slots 0: must be 1–65535"},
		"no slots, file": {[]string{"--join", "a:1", "--config", noSlots}, "invalid --slots 0: must be 1–65535"},
		"too many slots": {[]string{"--join", "a:1", "--slots", "65536"}, "--slots"},
		"far http":       {[]string{"--join", "127.0.0.1:1", "--http", "0.0.0.0:7463"}, `invalid --http "0.0.0.0:7463": must be a loopback address`},
		"unknown flag":   {[]string{"--jion", "a:1"}, "unknown flag"},
		"argument":       {[]string{"a:1"}, `unexpected argument "a:1"`},
		"bad level":      {[]string{"--join", "a:1", "--log-level", "loud"}, "--log-level"},
		"bad format":     {[]string{"--join", "a:1", "--log-format", "xml"}, "--log-format"},
		"bad resource":   {[]string{"--join", "a:1", "--resource", "gpu=some"}, "--resource gpu=some"},
		"bad GPUs":       {[]string{"--join", "a:1", "--gpus", "0,0"}, `invalid --gpus "0,0": duplicate 0`},
		"no isolation":   {[]string{"--join", "a:1", "--require-isolation"}, "missing --run-as: --require-isolation lets no command run as the worker's own user: add --run-as USER"},
		"isolated root":  {[]string{"--join", "a:1", "--require-isolation", "--run-as", "root"}, "invalid --run-as root: user root: commands would have all rights of the worker"},
		"GPUs twice":     {[]string{"--join", "a:1", "--gpus", "0,1", "--resource", "gpu=2"}, "--gpus and --resource gpu are mutually exclusive"},
		"bad file":       {[]string{"--join", "a:1", "--config", file}, `did you mean "slots"?`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			if code := run(c.args, &stdout, &stderr); code != program.ExitUsage || !strings.Contains(stderr.String(), c.want) || stdout.Len() > 0 {
				t.Errorf("exit %d, %q, %q; want 2 and %q", code, stdout.String(), stderr.String(), c.want)
			}
		})
	}
}

func TestAFileThatIsNoCAIsAUsageError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"): "no such file",
		dir:                           "it is a directory, and must be a file",
		file("empty", ""):             "is empty",
		file("half", "-----BEGIN CERTIFICATE-----\nMIIB"): "half written",
	} {
		var stderr bytes.Buffer
		code := run([]string{"--join", "127.0.0.1:1", "--name", "w", "--work-dir", t.TempDir(), "--ca-file", path}, io.Discard, &stderr)
		if code != program.ExitUsage || !strings.Contains(stderr.String(), "--ca-file: reading "+path+": ") || !strings.Contains(stderr.String(), want) {
			t.Errorf("code %d, %q, want %q", code, stderr.String(), want)
		}
	}
}

func TestVersionIsPrinted(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	if code := run([]string{"--version"}, &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), buildinfo.Version()) {
		t.Errorf("exit %d, %q, %q", code, stdout.String(), stderr.String())
	}
}

func TestResourceAmounts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"2": 2000, "0.5": 500, "0": 0, "0.0009": 0, "8GiB": 8 << 30 * 1000, "1.5KiB": 1536_000, "1GB": 1e12, "3B": 3000, "1 MiB": 1 << 20 * 1000,
	} {
		if got, err := thousandths(text); err != nil || got != want {
			t.Errorf("%q = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "1e3", "1/3", "GiB", "1..2", "0x1", "99999999999999999999", "9999999TiB"} {
		if got, err := thousandths(text); err == nil {
			t.Errorf("%q = %d", text, got)
		}
	}
	if _, err := thousandths(strings.Repeat("9", math.MaxUint8)); err == nil {
		t.Error("a number of 255 digits is accepted")
	}
}

// It sets an environment variable: it must not run in parallel.
func TestAWorkerThatCannotUseItsSecretsOrUserDoesNotStart(t *testing.T) {
	dir, none := filepath.Join(t.TempDir(), "secrets"), filepath.Join(t.TempDir(), "none")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(none, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "db"), nil, 0o644); err != nil { //nolint:gosec // that is the fault
		t.Fatal(err)
	}
	t.Setenv("CREDENTIALS_DIRECTORY", filepath.Join(dir, "missing"))
	for want, args := range map[string][]string{
		"secret db: mode 0644 gives access to all users: run chmod o= on it":             {"--secrets-dir", dir},
		"opening secrets directory: open " + dir + "/missing: no such file or directory": nil,
		`invalid --run-as no-such-user: unknown user "no-such-user"`:                     {"--secrets-dir", none, "--run-as", "no-such-user"},
	} {
		var stderr bytes.Buffer
		args = append([]string{"--join", "127.0.0.1:1", "--name", "w", "--work-dir", t.TempDir()}, args...)
		if code := run(args, io.Discard, &stderr); code != program.ExitFailed || !strings.Contains(stderr.String(), want) {
			t.Errorf("exit %d, %q; want %q", code, stderr.String(), want)
		}
	}
}

// startProgram starts this program and waits until it logs that it has started.
func startProgram(t *testing.T, args ...string) (cmd *exec.Cmd, log *bufio.Reader) {
	t.Helper()
	cmd, lines := startLogged(t, args...)
	awaitLine(t, lines, "worker started")
	return cmd, lines
}

// startProgramUntil starts this program and returns what it has logged up to a text.
func startProgramUntil(t *testing.T, text string, args ...string) (cmd *exec.Cmd, log string) {
	t.Helper()
	cmd, lines := startLogged(t, args...)
	for !strings.Contains(log, text) {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("exited before logging %q: %v", text, err)
		}
		log += line
	}
	return cmd, log
}

// startLogged starts this program and returns its log.
func startLogged(t *testing.T, args ...string) (cmd *exec.Cmd, log *bufio.Reader) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(stderr)
}

// awaitLine reads a program's log until a line has this text.
func awaitLine(t *testing.T, log *bufio.Reader, text string) {
	t.Helper()
	for {
		line, err := log.ReadString('\n')
		if err != nil {
			t.Fatalf("exited before logging %q: %v", text, err)
		}
		if strings.Contains(line, text) {
			return
		}
	}
}

func TestASignalDrainsAWorkerWithoutACoordinator(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, rest := startProgram(t, "--join", "127.0.0.1:1", "--name", "lonely", "--work-dir", dir, "--log-format", "json")

	// A second process cannot use its work directory.
	var stderr bytes.Buffer
	if code := run([]string{"--join", "127.0.0.1:1", "--name", "lonely", "--work-dir", dir}, io.Discard, &stderr); code != program.ExitInUse || !strings.Contains(stderr.String(), "used by another process") {
		t.Errorf("the second process: exit %d, %q", code, stderr.String())
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	logged, err := io.ReadAll(rest)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !bytes.Contains(logged, []byte(`"msg":"drained"`)) {
		t.Errorf("after SIGTERM: %v\n%s", err, logged)
	}
}
