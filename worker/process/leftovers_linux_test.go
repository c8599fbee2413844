package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/dtask/dtask/test/programfile"
)

// A process that executes another program has no environment for a moment. It is
// found nevertheless, even if it has left the session of its supervisor.
func TestALeftoverIsFoundWhileItExecutesAnotherProgram(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "again")
	programfile.Write(t, path, "#!/bin/sh\nexec \"$0\"\n", 0o700)
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

// A process that forks and ends can be missing in a list of processes that has its
// parent, which is gone when it is looked at.
func TestALeftoverIsFoundThatWasForkedDuringTheSearch(t *testing.T) {
	t.Parallel()
	for i := range 60 {
		out := newOutput()
		// It forks about the time of the search, another time in each round.
		text := fmt.Sprintf("echo $PPID\n(sleep %.4f; (sleep 1000 &) ) &\n", float64(i%30)/4000)
		if i%30 == 0 {
			text += "f() { f & }; f\n" // and a process that forks and ends endlessly
		}
		p := shell(t, text+"sleep 1000")
		p.Stdout = out
		done := p.background(t.Context())
		out.waitFor(t, "\n")
		if err := syscall.Kill(supervisorOf(t, out), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		wait(t, done)
		for range 3 { // as above
			left := p.alive(t)
			for _, process := range left {
				_ = syscall.Kill(-process.pgid, syscall.SIGKILL)
			}
			if len(left) > 0 {
				t.Fatalf("a process of the tree is alive: %+v", left)
			}
		}
	}
}

func TestAListOfProcessesIsIncompleteIfOneOfThemHasEnded(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pids := []int{child.Process.Pid, os.Getpid()}
	if procs, complete := readProcs(pids); len(procs) != 2 || !complete {
		t.Errorf("both live: got %+v, complete = %v", procs, complete)
	}
	_ = child.Process.Kill()
	_ = child.Wait() // killed
	if procs, complete := readProcs(pids); len(procs) != 1 || complete {
		t.Errorf("one has ended: got %+v, complete = %v", procs, complete)
	}
}
