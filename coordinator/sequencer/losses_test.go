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
)

// lines collects what is logged. Safe for concurrent use.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// with gives the lines that have some text.
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

func TestWorkersThatAreLostTogetherAreOneLineOfTheLog(t *testing.T) {
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
		c.await("their loss", func() bool { return up(c) == workers-silent })
		synctest.Wait()
		told := log.with("marked down")
		if len(told) != 1 || !strings.Contains(told[0], "count=20") || !strings.Contains(told[0], "w00") || strings.Contains(told[0], "w10") {
			t.Errorf("%d lines about %d workers, want one with their number and some names:\n%s", len(told), silent, strings.Join(told, ""))
		}
	})
}

// Those that the leader itself sends away are not lost because they do as they are
// told.
func TestWorkersThatAreToldToComeLaterAreWaitedFor(t *testing.T) {
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
		s.AllowReconnectsUntil(time.Now().Add(8 * time.Second)) // another one, sooner
		<-time.After(12 * time.Second)
		if n := up(c); n != 5 {
			t.Errorf("%d of 5 workers are up after 12 s, though they were told to come after 10", n)
		}
		since := time.Now()
		c.await("their loss", func() bool { return up(c) == 0 })
		if took := time.Since(since); took > 2*time.Second {
			t.Errorf("workers that did not come were given up %v too late", took)
		}
		// However often others are sent away, somebody who is gone is found out.
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
