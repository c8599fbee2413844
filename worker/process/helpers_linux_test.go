package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dtask/dtask/test/leak"
)

// hangGuard bounds the waits of tests for events that should be immediate.
const hangGuard = 2 * time.Minute

// helperVar makes the test binary execute the helper program that it names.
const helperVar = "PROCESS_TEST_HELPER"

// programs runs the programs of all tests, so that most run under a supervisor
// that has run others. Killing a tree may take longer than elsewhere: other tests run.
var programs = Pool{stuckLimit: time.Minute}

func TestMain(m *testing.M) {
	if os.Getenv(helperVar) == "unready" {
		_, err := programs.Run(context.Background(), Spec{Argv: script("true"), Dir: "/"})
		fmt.Println(err)
		os.Exit(0)
	}
	RunSupervisor()
	switch os.Getenv(helperVar) {
	case "worker":
		helperWorker()
	case "detach":
		helperDetach()
	default:
		goleak.VerifyTestMain(leak.Patient{M: m}, goleak.Cleanup(func(code int) {
			programs.Close()
			os.Exit(code)
		}))
	}
}

// helperWorker is a worker that is killed while it runs a program.
func helperWorker() {
	_, err := programs.Run(context.Background(), Spec{
		Argv:      script(os.Getenv("HELPER_SHELL")),
		Env:       []string{"PATH=" + DefaultPath, executionVar + os.Getenv("HELPER_EXECUTION"), "SELF=" + os.Getenv("SELF")},
		Dir:       "/",
		KillGrace: time.Hour,
	})
	fmt.Fprintln(os.Stderr, "the worker was not killed:", err)
	os.Exit(1)
}

// helperDetach starts a shell script in a session of its own, as daemons do,
// and exits.
func helperDetach() {
	env := []string{}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, helperVar) {
			env = append(env, entry)
		}
	}
	_, err := os.StartProcess("/bin/sh", []string{"sh", "-c", os.Getenv("HELPER_DETACHED")}, &os.ProcAttr{
		Env:   env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// detach returns a script that leaves another one running in a session of its
// own.
func detach(shell string) string {
	return helperVar + `=detach HELPER_DETACHED='` + shell + `' "$SELF"`
}

// script returns the arguments that execute a shell script.
func script(text string) []string { return []string{"/bin/sh", "-c", text} }

// A program is a Spec with a name that identifies its processes.
type program struct {
	Spec
	execution string
}

// shell returns a program that runs a shell script in the usual environment.
func shell(t *testing.T, text string) *program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	execution := fmt.Sprintf("%s-%d-%d", t.Name(), os.Getpid(), time.Now().UnixNano())
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, left := range aliveOf(t, execution) { // also with a planted bug
			left.signal(syscall.SIGKILL)
		}
	})
	return &program{execution: execution, Spec: Spec{
		Argv: script(text),
		Dir:  t.TempDir(),
		Env:  []string{"PATH=" + DefaultPath, executionVar + execution, "SELF=" + self},
	}}
}

// alive returns the processes of the program, which have its name in their
// initial environment.
func (p *program) alive(t *testing.T) []proc {
	t.Helper()
	return aliveOf(t, p.execution)
}

func aliveOf(t *testing.T, execution string) []proc {
	t.Helper()
	procs, _, err := allProcs()
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1+environLimit)
	var found []proc
	for _, p := range procs {
		if marked, _ := hasEnv(p.pid, []byte("\x00"+executionVar+execution+"\x00"), buf); marked && p.state != 'Z' {
			found = append(found, p)
		}
	}
	return found
}

// wantGone fails if any process of the program is alive.
func (p *program) wantGone(t *testing.T) {
	t.Helper()
	if left := p.alive(t); len(left) > 0 {
		t.Errorf("processes of the tree are alive: %+v", left)
	}
}

// eventually polls a condition that has no event.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// output is a Writer whose contents a test can wait for.
type output struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	chunks  []string
	changed chan struct{} // size 1: a token means that it has changed
}

func newOutput() *output { return &output{changed: make(chan struct{}, 1)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(p)
	o.chunks = append(o.chunks, string(p))
	select {
	case o.changed <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// waitFor waits until the output contains text.
func (o *output) waitFor(t *testing.T, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
	defer cancel()
	for !strings.Contains(o.String(), text) {
		select {
		case <-o.changed:
		case <-ctx.Done():
			t.Fatalf("the output does not contain %q: %q", text, o.String())
		}
	}
}

// A result contains the results of Run.
type result struct {
	exit Exit
	err  error
}

// background runs the program, and sends its result.
func (p *program) background(ctx context.Context) <-chan result { return p.runIn(ctx, &programs) }

// runIn is background in another pool.
func (p *program) runIn(ctx context.Context, pool *Pool) <-chan result {
	done := make(chan result, 1)
	go func() {
		exit, err := pool.Run(ctx, p.Spec)
		done <- result{exit, err}
	}()
	return done
}

// wait receives the result, or fails after hangGuard.
func wait(t *testing.T, done <-chan result) result {
	t.Helper()
	guard := time.NewTimer(hangGuard)
	defer guard.Stop()
	select {
	case r := <-done:
		return r
	case <-guard.C:
		t.Fatal("Run did not return")
		return result{}
	}
}
