package process

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stubborn is a script that ignores SIGTERM.
const stubborn = `trap "" TERM HUP INT; echo up; while :; do sleep 1000; done`

// family is a script that starts a tree: a parent, a stubborn child, and one
// that has left parent, group and session.
func family() string {
	return "(" + stubborn + ") &\n" + detach(stubborn) + "\n" + stubborn
}

func TestCancellingKillsTheWholeTree(t *testing.T) {
	t.Parallel()
	cause := errors.New("cancelled by its user")
	for name, grace := range map[string]time.Duration{"after a grace": 50 * time.Millisecond, "at once": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			out := newOutput()
			p := shell(t, family())
			p.Stdout, p.KillGrace = out, grace
			done := p.background(ctx)
			out.waitFor(t, "up\nup\nup\n")
			cancel(cause)
			r := wait(t, done)
			if !errors.Is(r.err, cause) || r.exit.Signal != "SIGKILL" || r.exit.OOM {
				t.Errorf("got %+v", r)
			}
			p.wantGone(t)
		})
	}
}

func TestAProgramMayEndByItselfWithinTheGrace(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := newOutput()
	// The child gets SIGTERM, too, and its grace although its parent is gone.
	p := shell(t, `(trap "sleep 0.05; echo child ends; exit" TERM; echo up; while :; do sleep 0.01; done) &
trap "echo parent ends; exit 9" TERM; echo up; while :; do sleep 0.01; done`)
	p.Stdout, p.KillGrace = out, hangGuard
	done := p.background(ctx)
	out.waitFor(t, "up\nup\n")
	cancel()
	r := wait(t, done)
	if !errors.Is(r.err, context.Canceled) || r.exit.Code != 9 || r.exit.Signal != "" {
		t.Errorf("got %+v", r)
	}
	if got := out.String(); !strings.Contains(got, "parent ends") || !strings.Contains(got, "child ends") {
		t.Errorf("output: %q", got)
	}
	p.wantGone(t)
}

func TestAStoppedProcessReceivesSIGTERM(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := newOutput()
	p := shell(t, "echo up; kill -STOP $$; echo never")
	p.Stdout, p.KillGrace = out, hangGuard
	done := p.background(ctx)
	out.waitFor(t, "up\n")
	eventually(t, "the program is stopped", func() bool {
		alive := p.alive(t)
		return len(alive) == 1 && alive[0].state == 'T'
	})
	cancel()
	if r := wait(t, done); !errors.Is(r.err, context.Canceled) || r.exit.Signal != "SIGTERM" {
		t.Errorf("got %+v", r)
	}
}

func TestProcessesThatAProgramLeavesBehindAreKilled(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]string{
		"in the background":       "(" + stubborn + ") &",
		"double forked":           "( (" + stubborn + ") & )",
		"in its own session":      detach(stubborn),
		"stopped":                 "(echo up; exec sh -c 'kill -STOP $$') &",
		"holding the output pipe": "(echo up; exec sleep 1000) &",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := newOutput()
			// The program ends when it reads a line, which the test writes after the
			// other process has started.
			p := shell(t, left+"\nread go; exit 4")
			in, feed, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			p.Stdin, p.Stdout = in, out
			done := p.background(t.Context())
			out.waitFor(t, "up\n")
			if _, err := feed.WriteString("go\n"); err != nil {
				t.Fatal(err)
			}
			_ = feed.Close()
			if r := wait(t, done); r.err != nil || r.exit.Code != 4 {
				t.Errorf("got %+v", r)
			}
			p.wantGone(t)
		})
	}
}

func TestAnEndlesslyForkingTreeIsKilled(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		// Each process starts a child and ends: there is always one, never the
		// same.
		"a chain": "f() { f & }; echo up; f; while :; do sleep 1000; done",
		// Several hundred processes that wait for each other.
		"a crowd": "f() { if [ $1 -gt 0 ]; then f $(($1-1)) & f $(($1-1)) & wait; else sleep 1000; fi; }; echo up; f 6",
		// Each process that dies is started again.
		"a supervisor": "echo up; while :; do sleep 1000 & sleep 1000 & wait; done",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := newOutput()
			p := shell(t, text)
			p.Stdout = out
			done := p.background(ctx)
			out.waitFor(t, "up\n")
			cancel()
			if r := wait(t, done); !errors.Is(r.err, context.Canceled) {
				t.Errorf("got %+v", r)
			}
			p.wantGone(t)
		})
	}
}

func TestNothingOutlivesAKilledWorker(t *testing.T) {
	t.Parallel()
	p := shell(t, family())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	worker := exec.CommandContext(t.Context(), self)
	worker.Env = []string{helperVar + "=worker", "HELPER_SHELL=" + p.Argv[2], "HELPER_EXECUTION=" + p.execution, "SELF=" + self}
	worker.Stderr = os.Stderr
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the tree is there", func() bool { return len(p.alive(t)) >= 6 })
	supervisors := childrenOf(t, worker.Process.Pid)
	if len(supervisors) != 1 {
		t.Fatalf("children of the worker: %+v, want one supervisor", supervisors)
	}
	_ = worker.Process.Kill()
	_ = worker.Wait() // killed
	eventually(t, "the tree is gone", func() bool { return len(p.alive(t)) == 0 })
	eventually(t, "the supervisor is gone", func() bool {
		now, ok := readProc(supervisors[0].pid, make([]byte, 1024))
		return !ok || now.start != supervisors[0].start || now.state == 'Z'
	})
}

func childrenOf(t *testing.T, pid int) []proc {
	t.Helper()
	procs, _, err := allProcs()
	if err != nil {
		t.Fatal(err)
	}
	var children []proc
	for _, p := range procs {
		if p.ppid == pid {
			children = append(children, p)
		}
	}
	return children
}

// supervisorOf returns the pid that the program printed as its first line.
func supervisorOf(t *testing.T, out *output) int {
	t.Helper()
	line, _, _ := strings.Cut(out.String(), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatalf("no pid in %q", out.String())
	}
	return pid
}

func TestTheTreeOfAKilledSupervisorIsKilled(t *testing.T) {
	t.Parallel()
	out := newOutput()
	p := shell(t, "echo $PPID\n"+family())
	p.Stdout = out
	done := p.background(t.Context())
	out.waitFor(t, "up\nup\nup\n")
	if err := syscall.Kill(supervisorOf(t, out), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r := wait(t, done)
	var lost *SupervisorError
	if !errors.As(r.err, &lost) || !lost.Started || r.exit != (Exit{}) {
		t.Errorf("got %+v", r)
	}
	p.wantGone(t)
}

func TestASupervisorThatDoesNotAnswerIsKilled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := newOutput()
	p := shell(t, "echo $PPID\n"+family())
	p.Stdout = out
	done := make(chan result, 1)
	go func() {
		impatient := Pool{stuckLimit: 100 * time.Millisecond}
		defer impatient.Close()
		exit, err := impatient.Run(ctx, p.Spec)
		done <- result{exit, err}
	}()
	out.waitFor(t, "up\nup\nup\n")
	if err := syscall.Kill(supervisorOf(t, out), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	cancel()
	r := wait(t, done)
	if !errors.Is(r.err, ErrStuck) || !errors.Is(r.err, context.Canceled) {
		t.Errorf("got %+v", r)
	}
	p.wantGone(t)
}

func TestASupervisorIgnoresSignals(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := shell(t, `for s in TERM INT HUP QUIT USR1 PIPE TSTP; do kill -$s $PPID; done; echo still here`)
	p.Stdout = &out
	exit, err := programs.Run(t.Context(), p.Spec)
	if err != nil || exit.Code != 0 || out.String() != "still here\n" {
		t.Errorf("got %+v, %v, %q", exit, err, out.String())
	}
}

func TestTheNameAloneDoesNotMakeASupervisor(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), supervisorName)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), link, "-test.list=^$")
	cmd.Args[0] = supervisorName
	cmd.Env = []string{}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("it did not run its main: %v: %s", err, out)
	}
}

func TestRunRequiresACallOfRunSupervisor(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = []string{helperVar + "=unready"}
	if out, err := cmd.Output(); err != nil || strings.TrimSpace(string(out)) != ErrNoSupervisor.Error() {
		t.Errorf("got %q, %v", out, err)
	}
	if err := Ready(); err != nil {
		t.Errorf("after RunSupervisor: %v", err)
	}
}

func TestAnotherProcessWithTheOutputPipeDoesNotBlockRun(t *testing.T) {
	t.Parallel()
	out := newOutput()
	p := shell(t, "echo $$; read go; echo end")
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	p.Stdin, p.Stdout = in, out
	done := p.background(t.Context())
	out.waitFor(t, "\n")
	pid := strings.TrimSpace(out.String())
	held, err := os.OpenFile("/proc/"+pid+"/fd/1", os.O_WRONLY, 0) // this test is the other process
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	_ = feed.Close()
	if r := wait(t, done); r.err != nil || out.String() != pid+"\nend\n" {
		t.Errorf("got %+v, output %q", r, out.String())
	}
}
