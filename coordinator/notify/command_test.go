//go:build linux

package notify

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/test/programfile"
)

// script writes an executable shell script and returns its path and directory.
func script(t *testing.T, text string) (path, dir string) {
	t.Helper()
	dir = t.TempDir()
	path = filepath.Join(dir, "hook")
	programfile.Write(t, path, "#!/bin/sh\ncd "+dir+"\n"+text, 0o700)
	return path, dir
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestACommandReceivesTheDeadLetterAndAMinimalEnvironment(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	path, dir := script(t, "cat > body\nenv > env\npwd > pwd\necho a lot\n")
	c.die(fsm.DeadLetterCommandNotification)
	c.lead(nil, func(cfg *Config) { cfg.Hooks.DeadLetterCommand = path })
	c.await(1)
	var e struct {
		Type string
		Data document.DeadLetterWithHistory
	}
	if err := json.Unmarshal([]byte(read(t, dir, "body")), &e); err != nil || e.Type != "dead_letter" || e.Data.Task != "fetch" {
		t.Errorf("body is %q: %v", read(t, dir, "body"), err)
	}
	for line := range strings.FieldsSeq(read(t, dir, "env")) {
		switch name, _, _ := strings.Cut(line, "="); name {
		case "PATH", "HOME", "LANG", "PWD", "OLDPWD", "SHLVL", "_", "DTASK_EVENT", "DTASK_WEBHOOK_ID":
		default:
			t.Errorf("the command sees %s", name)
		}
	}
	if env := read(t, dir, "env"); !strings.Contains(env, "DTASK_EVENT=dead_letter\n") || !strings.Contains(env, "DTASK_WEBHOOK_ID=dtask_001122334455_1_") {
		t.Errorf("environment is %s", env)
	}
}

func TestAFailedCommandIsRetried(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	path, dir := script(t, "cat >> bodies\n[ -e tried ] && exit 0\ntouch tried\necho database down >&2\nexit 3\n")
	c.die(fsm.DeadLetterCommandNotification)
	out := logged{lines: make(chan string, 10)}
	c.lead(nil, func(cfg *Config) {
		cfg.Hooks.DeadLetterCommand = path
		cfg.Logger = slog.New(slog.NewTextHandler(out, nil))
	})
	if line := <-out.lines; !strings.Contains(line, "database down") || !strings.Contains(line, "exit status 3") {
		t.Errorf("logged: %s", line)
	}
	c.await(1)
	if n := strings.Count(read(t, dir, "bodies"), `"dead_letter"`); n != 2 {
		t.Errorf("the command ran %d times, want 2", n)
	}
}

// The end of a term kills a command and its process group. Both hold the writing end
// of a pipe, which the test reads until they are gone.
func TestACommandEndsWithTheTerm(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	path, dir := script(t, "exec 3> pipe\nsleep 300 &\necho started >&3\nsleep 300\n")
	fifo := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	c.die(fsm.DeadLetterCommandNotification)
	_, stop := c.lead(nil, func(cfg *Config) { cfg.Hooks.DeadLetterCommand = path })
	pipe, err := os.Open(fifo) // waits for the script
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pipe.Close() }()
	line := make([]byte, len("started\n"))
	if _, err := io.ReadFull(pipe, line); err != nil {
		t.Fatal(err)
	}
	stop()
	if rest, err := io.ReadAll(pipe); err != nil || len(rest) > 0 {
		t.Errorf("after the end of the term: %q, %v", rest, err)
	}
	if c.left() != 1 {
		t.Errorf("%d notifications left, want the undelivered one", c.left())
	}
}

func TestACommandThatExceedsItsTimeoutIsKilledAndRetried(t *testing.T) {
	t.Parallel()
	path, _ := script(t, "sleep 300\n")
	d := &deliverer{cfg: Config{Hooks: Hooks{DeadLetterCommand: path}}}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if r := d.runCommand(ctx, message{}); r.kind != resultRetry || !strings.Contains(r.reason, "exceeded its timeout") {
		t.Errorf("got result %+v", r)
	}
}
