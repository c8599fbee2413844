package process

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// supervisorPid runs a program that prints the pid of its supervisor.
func supervisorPid(t *testing.T, pool *Pool) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(outputOf(t, pool, "echo $PPID")))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// outputOf runs a shell script, and returns what it printed.
func outputOf(t *testing.T, pool *Pool, text string) string {
	t.Helper()
	var out bytes.Buffer
	p := shell(t, text)
	p.Stdout, p.Stderr = &out, &out
	if _, err := pool.Run(t.Context(), p.Spec); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out.String()
}

// newPool returns a pool that no other test uses.
func newPool(t *testing.T) *Pool {
	t.Helper()
	pool := new(Pool)
	t.Cleanup(pool.Close)
	return pool
}

func TestASupervisorRunsOneProgramAfterAnother(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	first := supervisorPid(t, pool)
	for range 5 {
		if next := supervisorPid(t, pool); next != first {
			t.Fatalf("supervisor %d, before %d", next, first)
		}
	}
}

// whatAProgramInherits prints everything that a program gets from its
// supervisor, except identifiers of processes.
const whatAProgramInherits = `umask; ulimit -a; pwd -P | wc -l; env | sort | grep -v -e DTASK_EXECUTION_ID -e PWD=
ls -m /proc/$$/fd; grep -e NoNewPrivs -e SigIgn -e SigBlk -e Cpus_allowed: /proc/self/status; nice; cat /proc/self/oom_score_adj
cat /proc/$PPID/task/*/children | wc -w; trap; cat`

func TestNothingOfOneProgramReachesTheNext(t *testing.T) {
	t.Parallel()
	want := outputOf(t, newPool(t), whatAProgramInherits)
	for name, text := range map[string]string{
		"umask":               "umask 0",
		"limits":              "ulimit -S -n 64; ulimit -f 1000; ulimit -S -c 0",
		"environment":         "export LEAK=1 PATH=/nowhere; cd /",
		"descriptors":         "exec 3>/dev/null 4</etc/passwd 9>&1",
		"directory":           "cd /; rmdir \"$OLDPWD\"",
		"ignored signals":     "trap '' TERM INT HUP CHLD USR1",
		"unread input":        "exec true",
		"orphans":             "(sleep 1000 &); (" + detach(stubborn) + ")",
		"ended orphans":       "(true & true & true &)",
		"the supervisor's":    "exec 5</proc/$PPID/fd/3; echo x >&5; exec 6<>/proc/$PPID/fd/0",
		"priority":            "exec nice -n 5 true",
		"a stopped process":   "sh -c 'kill -STOP $$' &",
		"an ended by signal":  "kill -SEGV $$",
		"a failed start":      "exec /no/such/program",
		"limits from outside": "prlimit --pid $PPID --nofile=77:77 --core=1:1",
		"nice from outside":   "renice -n 3 -p $PPID",
		"cpus from outside":   "taskset -p 1 $PPID",
		"oom from outside":    "echo 500 >/proc/$PPID/oom_score_adj",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			p := shell(t, text)
			p.Stdin = strings.NewReader("input of the first program\n")
			if _, err := pool.Run(t.Context(), p.Spec); err != nil {
				t.Fatal(err)
			}
			p.wantGone(t)
			if got := outputOf(t, pool, whatAProgramInherits); got != want {
				t.Errorf("after %q a program inherits:\n%s\ninstead of:\n%s", text, got, want)
			}
		})
	}
}

// How a program ended, or was stopped, does not show in the exit of a later one.
func TestAProgramEndsAsIfItWereTheFirstOfItsSupervisor(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	first := supervisorPid(t, pool)
	for _, x := range []struct {
		text string
		stop bool
		want Exit
	}{
		{"exit 3", false, Exit{Code: 3}},
		{"kill -SEGV $$", false, Exit{Code: -1, Signal: "SIGSEGV"}},
		{"exit 0", false, Exit{}},
		{"echo up; exec sleep 1000", true, Exit{Code: -1, Signal: "SIGTERM"}},
		{"sleep 0.05; exit 5", false, Exit{Code: 5}},
		{"trap '' TERM; echo up; exec sleep 1000", true, Exit{Code: -1, Signal: "SIGKILL"}},
		{"sleep 0.05; exit 6", false, Exit{Code: 6}},
		{"sleep 1000 & kill -KILL $$", false, Exit{Code: -1, Signal: "SIGKILL"}},
		{"sleep 0.05", false, Exit{}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		out := newOutput()
		p := shell(t, x.text)
		p.Stdout, p.KillGrace = out, 100*time.Millisecond
		done := make(chan result, 1)
		go func() {
			exit, err := pool.Run(ctx, p.Spec)
			done <- result{exit, err}
		}()
		if x.stop {
			out.waitFor(t, "up\n")
			cancel()
		}
		if r := wait(t, done); r.exit != x.want || errors.Is(r.err, context.Canceled) != x.stop || !x.stop && r.err != nil {
			t.Errorf("%q: got %+v, want %+v, stopped %v", x.text, r, x.want, x.stop)
		}
		cancel()
	}
	if last := supervisorPid(t, pool); last != first {
		t.Error("another supervisor ran the programs")
	}
}

func TestASupervisorKeepsNoDescriptorsOfItsPrograms(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	descriptors := func(pid int) int {
		entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	pid := supervisorPid(t, pool)
	before := descriptors(pid)
	for _, text := range []string{"true", "sleep 0.05", "sleep 1000 & true", "kill -KILL $$", "exec 7</etc/passwd"} {
		outputOf(t, pool, text)
	}
	_, err := pool.Run(t.Context(), Spec{Argv: []string{"/etc/passwd"}, Dir: "/"}) // cannot start
	if err == nil {
		t.Error("a file without the right to execute it has started")
	}
	if after := descriptors(pid); after != before {
		t.Errorf("the supervisor has %d descriptors, before %d", after, before)
	}
}

func TestASupervisorThatWasChangedFromOutsideIsReplaced(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	first := supervisorPid(t, pool)
	outputOf(t, pool, "prlimit --pid $PPID --nofile=77:77")
	if next := supervisorPid(t, pool); next == first {
		t.Error("the supervisor was used again")
	}
}

func TestAnIdleSupervisorThatDiedIsReplaced(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	first := supervisorPid(t, pool)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if next := supervisorPid(t, pool); next == first {
		t.Error("the dead supervisor ran a program")
	}
	if got, want := pool.Stats(), (PoolStats{Started: 2, Lost: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A supervisor that dies before it reads its order has not started the program,
// and the worker knows that: the program runs once, under another supervisor.
func TestAProgramWhoseSupervisorDiedBeforeItReadTheOrderRunsOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	first := supervisorPid(t, pool)
	stopped := pool.take()
	if err := syscall.Kill(first, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	pool.put(stopped)
	path := filepath.Join(t.TempDir(), "runs")
	p := shell(t, "echo run >>"+path)
	done := make(chan result, 1)
	go func() {
		exit, err := pool.Run(t.Context(), p.Spec)
		done <- result{exit, err}
	}()
	eventually(t, "the order was sent", func() bool { return unread(t, stopped) > 0 })
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := wait(t, done); r.err != nil || r.exit.Code != 0 {
		t.Errorf("got %+v", r)
	}
	if got, _ := os.ReadFile(path); string(got) != "run\n" {
		t.Errorf("the program ran as often as %q has lines", got)
	}
}

// unread returns how many bytes of orders a supervisor has not read.
func unread(t *testing.T, h *handle) (n int) {
	t.Helper()
	raw, err := h.conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAnIdleSupervisorEndsAfterAWhile(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	pool.idleLimit = time.Millisecond
	pid := supervisorPid(t, pool)
	eventually(t, "the idle supervisor is gone", func() bool {
		_, alive := readProc(pid, make([]byte, 1024))
		return !alive
	})
	if next := supervisorPid(t, pool); next == pid {
		t.Error("the pid of the old supervisor")
	}
}

func TestCloseEndsIdleSupervisors(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	pid := supervisorPid(t, pool)
	pool.Close()
	if p, alive := readProc(pid, make([]byte, 1024)); alive {
		t.Errorf("a supervisor is alive: %+v", p)
	}
	if later := supervisorPid(t, pool); later == pid {
		t.Error("the closed supervisor ran a program")
	}
	if left := pool.take(); left != nil {
		t.Error("a closed pool keeps supervisors")
	}
}

func TestALargeOrderArrivesWhole(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	for range 2 {
		p := shell(t, "echo ${#A} ${#B} ${#C} ${#D}")
		for _, name := range []string{"A", "B", "C", "D"} {
			p.Env = append(p.Env, name+"="+strings.Repeat("x", 100_000))
		}
		var out bytes.Buffer
		p.Stdout = &out
		if _, err := pool.Run(t.Context(), p.Spec); err != nil || out.String() != "100000 100000 100000 100000\n" {
			t.Errorf("got %q, %v", out.String(), err)
		}
	}
}
