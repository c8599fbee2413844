//go:build linux

package coordinator

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/backup"
	"github.com/dtask/dtask/test/programfile"
)

// commandOf makes a script the command of backups, with its own directory as $D.
func commandOf(t *testing.T, text string) (handOver func(ctx context.Context, added backup.Added) error, dir string) {
	t.Helper()
	dir = t.TempDir()
	path := filepath.Join(dir, "hook")
	programfile.Write(t, path, "#!/bin/sh\nD="+dir+"\n"+text, 0o700)
	return (&Config{BackupCommand: path}).backupCommand(), dir
}

func TestTheCommandOfABackupReceivesItsFilesAndAMinimalEnvironment(t *testing.T) {
	t.Parallel()
	handOver, dir := commandOf(t, `printf '%s %s %s\n' "$#" "$1" "$DTASK_EVENT" > $D/args
cp "$1" "$DTASK_BACKUP_SEGMENT" $D/
env > $D/env
echo all is well >&2
`)
	from := t.TempDir()
	added := backup.Added{State: filepath.Join(from, backup.NewStateFile(7).Name), Segment: filepath.Join(from, backup.NewSegment(3, 7).Name)}
	for _, path := range []string{added.State, added.Segment} {
		if err := os.WriteFile(path, []byte(path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := handOver(t.Context(), added); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"args": "1 " + added.State + " backup\n", filepath.Base(added.State): added.State, filepath.Base(added.Segment): added.Segment,
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
		}
	}
	env, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(env)) {
		switch name, _, _ := strings.Cut(line, "="); name {
		case "PATH", "HOME", "LANG", "PWD", "OLDPWD", "SHLVL", "_", "DTASK_EVENT", "DTASK_BACKUP_SEGMENT":
		default:
			t.Errorf("the command sees %s", name)
		}
	}
}

func TestTheCommandOfABackupThatFailsIsQuotedWithTheEndOfItsOutput(t *testing.T) {
	t.Parallel()
	added := backup.Added{State: "/mnt/" + backup.NewStateFile(7).Name}
	begin := backup.NewStateFile(7).Name + " was written, but --backup-command failed: exit status 3"
	long := strings.Repeat("x", 10_000)
	for text, want := range map[string]string{
		"exit 3": begin, "echo out of space >&2; exit 3": begin + ": out of space",
		"echo " + long + " >&2; echo out of space >&2; exit 3": begin + ": " + long[:maxBackupStderr-len("\nout of space\n")] + "\nout of space",
	} {
		handOver, _ := commandOf(t, text)
		err := handOver(t.Context(), added)
		if err == nil || err.Error() != want || backupError(err) != want { // all of it is recorded
			t.Errorf("got %v, want %s", err, want)
		}
	}
	handOver, _ := commandOf(t, "")
	if err := handOver(t.Context(), added); err != nil {
		t.Error(err)
	}
	gone := (&Config{BackupCommand: filepath.Join(t.TempDir(), "gone")}).backupCommand()
	if err := gone(t.Context(), added); err == nil || !strings.Contains(err.Error(), "no such file or directory") {
		t.Errorf("got %v", err)
	}
}

// At the end of the run, the leader records that the directory may hang.
func TestTheCommandOfABackupIsKilledBeforeTheEndOfItsRun(t *testing.T) {
	t.Parallel()
	handOver, _ := commandOf(t, "echo copying >&2\nsleep 3600\n")
	var err error
	for limit := time.Second; limit < time.Minute; limit *= 2 { // this machine may be busy
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err = handOver(ctx, backup.Added{State: "/mnt/state"})
		early := ctx.Err() == nil
		cancel()
		if err == nil {
			t.Fatal("the command was not killed")
		}
		if early && strings.HasSuffix(err.Error(), "--backup-command failed: it took too long: copying") {
			return
		}
	}
	t.Errorf("got %v", err)
}

func TestTheCommandOfABackupEndsWithItsRun(t *testing.T) {
	t.Parallel()
	handOver, dir := commandOf(t, "exec 3> $D/pipe\nsleep 3600 &\nwait\n")
	fifo := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	replaced := errors.New("replaced")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- handOver(ctx, backup.Added{State: "/mnt/state"}) }()
	pipe, err := os.Open(fifo) // waits for the script
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pipe.Close() }() // read only
	cancel(replaced)
	if _, err := io.ReadAll(pipe); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, replaced) {
		t.Errorf("got %v", err)
	}
}

func TestACommandOfBackupsThatCanNotBeRunIsRefused(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"hook": `--backup-command: invalid path "hook": must be absolute`, t.TempDir(): "is not executable", "/gone": "--backup-command: stat /gone: ",
	} {
		cfg := Config{ID: "n1", DataDir: t.TempDir(), Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), BackupCommand: path}
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
}
