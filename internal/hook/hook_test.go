//go:build linux

package hook

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// program writes a shell script.
func program(t *testing.T, text string) *Program {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil { //nolint:gosec // it is to be executed
		t.Fatal(err)
	}
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
