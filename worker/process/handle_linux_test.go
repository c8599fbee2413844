package process

import (
	"context"
	"encoding/gob"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A supervisor that has received an order may have started the program, even if it
// dies immediately afterwards: the order must not be given to another one.
func TestAnOrderThatWasReceivedIsNeverReportedAsNotReceived(t *testing.T) {
	t.Parallel()
	for range 3000 {
		conn, theirs, err := socketPair()
		if err != nil {
			t.Fatal(err)
		}
		h := &handle{conn: conn, reports: gob.NewDecoder(conn)}
		h.orders = gob.NewEncoder(&h.buf)
		received := make(chan int, 1)
		go func() { // a supervisor that dies as soon as it has the order
			buf := make([]byte, 64<<10)
			n, _, _, _, _ := unix.Recvmsg(int(theirs.Fd()), buf, nil, 0)
			_ = theirs.Close()
			received <- n
		}()
		_, err = h.exchange(&run{start: &startOrder{Path: "/bin/true", Dir: "/"}, streams: &stdio{child: [3]int{1, 1, 1}}})
		n := <-received
		_ = conn.Close()
		if n > 0 && errors.Is(err, errNotReceived) {
			t.Fatalf("the supervisor received %d bytes, and the worker reports: %v", n, err)
		}
	}
}

// A context can end while a supervisor is being started: the stop must not be sent
// before the order to start, because a supervisor without a program ignores it.
func TestAProgramThatIsStoppedBeforeItsOrderIsSentDoesNotRunOn(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	first := supervisorPid(t, pool)
	h := pool.take()
	h.begin()
	h.stop(0, time.Hour)
	path := filepath.Join(t.TempDir(), "started")
	r := runOf(t, shell(t, "touch "+path))
	if _, err := h.exchange(r); !errors.Is(err, errNotSent) {
		t.Errorf("exchange: got %v", err)
	}
	_ = h.conn.SetDeadline(time.Time{})
	pool.put(h)
	if next := supervisorPid(t, pool); next != first {
		t.Error("the supervisor did not remain usable")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the program has started")
	}
}

func TestAProgramEndsWhenItsContextEndsAboutTheTimeOfItsStart(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	cause := errors.New("cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for range 50 {
		supervisorPid(t, pool) // so that the pool has one
		h := pool.take()
		p := shell(t, "exec sleep 1000")
		_, err := h.run(ctx, runOf(t, p))
		pool.put(h)
		if !errors.Is(err, cause) || errors.Is(err, ErrStuck) {
			t.Fatalf("got %v, want only %v", err, cause)
		}
		p.wantGone(t)
	}
}

// runOf returns what a handle needs to run a program.
func runOf(t *testing.T, p *program) *run {
	t.Helper()
	start, err := p.order(nil)
	if err != nil {
		t.Fatal(err)
	}
	streams, err := openStdio(&p.Spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		streams.closeChild()
		if err := streams.finish(); err != nil {
			t.Error(err)
		}
	})
	return &run{spec: &p.Spec, start: start, streams: streams, limit: stuckTimeout}
}

// A stop that is sent when the program has just ended reaches a supervisor without a
// program. It must not stop the next one.
func TestAStopThatComesTooLateDoesNotStopTheNextProgram(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	first := supervisorPid(t, pool)
	h := pool.take()
	h.stop(0, time.Hour)
	_ = h.conn.SetDeadline(time.Time{})
	pool.put(h)
	for range 2 {
		p := shell(t, "sleep 0.05; exit 3")
		if exit, err := pool.Run(t.Context(), p.Spec); err != nil || exit.Code != 3 {
			t.Errorf("got %+v, %v", exit, err)
		}
	}
	if last := supervisorPid(t, pool); last != first {
		t.Error("another supervisor ran the programs")
	}
}

func TestCloseEndsAnIdleSupervisorThatIsStopped(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	pid := supervisorPid(t, pool)
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	closed := make(chan result, 1)
	go func() {
		pool.Close()
		closed <- result{}
	}()
	t.Cleanup(func() {
		if t.Failed() { // it still waits
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	})
	wait(t, closed)
}
