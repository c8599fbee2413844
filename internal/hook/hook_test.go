//go:build linux

package hook

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/dtask/dtask/test/programfile"
)

// program writes a shell script.
func program(t *testing.T, text string) *Program {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook")
	programfile.Write(t, path, "#!/bin/sh\n"+text, 0o700)
	return &Program{Path: path, MaxStderr: 100}
}

func TestAProgramReceivesItsArgumentsVariablesAndInput(t *testing.T) {
	t.Parallel()
	p := program(t, `echo "$# $2 $NAME $HOME $(pwd) $(cat)" >&2`)
	p.Args, p.Env, p.Stdin = []string{"one", "two words"}, []string{"NAME=value"}, []byte("input")
	if stderr, err := p.Run(t.Context()); err != nil || stderr != "2 two words value / / input" {
		t.Errorf("got %q, %v", stderr, err)
	}
}

func TestTheEndOfStandardErrorIsReturnedWithTheExitCode(t *testing.T) {
	t.Parallel()
	p := program(t, "echo out; echo 'a é b' >&2; exit 3\n")
	p.MaxStderr = 4 // the first byte is the second one of é
	stderr, err := p.Run(t.Context())
	if failed, is := errors.AsType[*exec.ExitError](err); !is || failed.ExitCode() != 3 || stderr != "b" {
		t.Errorf("got %q, %v", stderr, err)
	}
}

func TestAProgramIsNotStartedAfterItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if stderr, err := program(t, "echo started >&2\n").Run(ctx); !errors.Is(err, context.Canceled) || stderr != "" {
		t.Errorf("got %q, %v", stderr, err)
	}
}

// Processes that a program leaves in its group don't delay its result.
func TestProcessesThatAProgramLeavesAreKilled(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p := program(t, "exec 3> \"$1\"\n{ sleep 60; echo alive >&3; } &\nexit 0\n")
	p.Args = []string{fifo}
	done := make(chan error, 1)
	go func() {
		_, err := p.Run(t.Context())
		done <- err
	}()
	pipe, err := os.Open(fifo) // waits for the script
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pipe.Close() }()
	if rest, err := io.ReadAll(pipe); err != nil || len(rest) > 0 {
		t.Errorf("read %q, %v from the pipe", rest, err)
	}
	if err := <-done; err != nil {
		t.Errorf("got %v", err)
	}
}
