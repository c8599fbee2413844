package sequencer_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// lines collects log lines. Safe for concurrent use.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// with returns the lines that contain a text.
func (l *lines) with(text string) (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, text) {
			list = append(list, line)
		}
	}
	return list
}

func TestWorkersMarkedDownTogetherAreOneLogLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const workers, silent = 50, 20
		c := newCluster(t)
		var log lines
		c.config = func(cfg *sequencer.Config) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
		s, _ := c.lead()
		for i := range workers {
			if w := attachWorker(t, s, fmt.Sprintf("w%02d", i), "a", 1, hold); i < silent {
				w.fallSilent()
			}
		}
		c.await("workers down", func() bool { return up(c) == workers-silent })
		synctest.Wait()
		logged := log.with("marked down")
		if len(logged) != 1 || !strings.Contains(logged[0], "count=20") || !strings.Contains(logged[0], "w00") || strings.Contains(logged[0], "w10") {
			t.Errorf("%d lines about %d workers, want one with their number and some names:\n%s", len(logged), silent, strings.Join(logged, ""))
		}
	})
}

// Workers that the leader defers must not be marked down while they wait.
func TestDeferredWorkersMayReconnectLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		for i := range 5 {
			attachWorker(t, s, fmt.Sprintf("w%d", i), "a", 1, hold)
		}
		_ = end()
		s, _ = c.lead()
		s.AllowReconnectsUntil(time.Now().Add(10 * time.Second))
		s.AllowReconnectsUntil(time.Now().Add(8 * time.Second)) // an earlier time has no effect
		<-time.After(12 * time.Second)
		if n := up(c); n != 5 {
			t.Errorf("%d of 5 workers are up after 12 s, although they may reconnect after 10", n)
		}
		since := time.Now()
		c.await("workers down", func() bool { return up(c) == 0 })
		if took := time.Since(since); took > 2*time.Second {
			t.Errorf("workers that did not reconnect were marked down %v too late", took)
		}
		// However often other workers are deferred, a worker that is gone is
		// marked down.
		gone := attachWorker(t, s, "gone", "a", 1, hold)
		gone.fallSilent()
		s.Detach(gone.id, gone)
		since = time.Now()
		for range 60 {
			s.AllowReconnectsUntil(time.Now().Add(10 * time.Second))
			<-time.After(time.Second)
		}
		if n := up(c); n != 0 {
			t.Errorf("a worker that is gone is up after %v", time.Since(since))
		}
	})
}

// The worker's last heartbeat may have been answered, so that it starts
// attempts: they must not start elsewhere.
func TestAWorkerThatIsHeardFromWhileItsSessionIsClosedStaysUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		w := attachWorker(t, s, "w", "a", 1, hold)
		id := mustSubmit(t, s, spec{key: "k", n: 1})
		w.await("the assignment", func() bool { return len(w.held) == 1 })
		w.mu.Lock()
		w.late = true
		w.mu.Unlock()
		w.fallSilent()
		time.Sleep(5 * time.Second)
		w.mu.Lock()
		closed := w.closed
		w.mu.Unlock()
		if task := c.task(id, 0); closed == nil || up(c) != 1 || task.State != fsm.Assigned {
			t.Errorf("closed with %v, %d workers up, task %v; want a closed session, the worker up, the task assigned", closed, up(c), task.State)
		}
		c.await("the worker to be marked down", func() bool { return up(c) == 0 })
	})
}
