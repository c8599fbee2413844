package process

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A process that executes another program has no environment for a moment. It is
// found nevertheless, even if it has left the session of its supervisor.
func TestALeftoverIsFoundWhileItExecutesAnotherProgram(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "again")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec \"$0\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 25 {
		out := newOutput()
		p := shell(t, "echo $PPID\n"+detach("echo up; exec "+path)+"\nsleep 1000")
		p.Stdout = out
		done := p.background(t.Context())
		out.waitFor(t, "up\n")
		if err := syscall.Kill(supervisorOf(t, out), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		wait(t, done)
		// It may also be invisible to this test at the first look.
		for range 3 {
			left := p.alive(t)
			for _, process := range left {
				process.signal(syscall.SIGKILL)
			}
			if len(left) > 0 {
				t.Fatalf("a process of the tree is alive: %+v", left)
			}
		}
	}
}
