package coordinator

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAReplicaIsAliveWithoutWorkOrWithProgress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		progress func(call uint64) (steps uint64, busy bool)
		want     int // reports in ten intervals
	}{
		"nothing to do":           {func(uint64) (uint64, bool) { return 7, false }, 10},
		"work that advances":      {func(call uint64) (uint64, bool) { return call, true }, 10},
		"work that never ends":    {func(uint64) (uint64, bool) { return 7, true }, 0},
		"work that ends later":    {func(call uint64) (uint64, bool) { return max(call, 6), true }, 5},
		"work that begins to end": {func(call uint64) (uint64, bool) { return min(call, 6), true }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
				defer cancel()
				calls, got := uint64(0), 0
				reportAlive(ctx, time.Second, func() (uint64, bool) {
					calls++
					return c.progress(calls)
				}, func() { got++ })
				if got != c.want {
					t.Errorf("got %d reports, want %d", got, c.want)
				}
			})
		})
	}
}

// A snapshot of a large state is read for longer than a watchdog waits.
func TestReadingASnapshotIsProgress(t *testing.T) {
	t.Parallel()
	var w work
	w.begin()
	r := w.reader(strings.NewReader("ab"))
	for want := uint64(1); want <= 2; want++ {
		if _, err := r.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if got := w.steps.Load(); got != want || w.running.Load() != 1 {
			t.Errorf("%d steps, %d running, want %d and 1", got, w.running.Load(), want)
		}
	}
	w.end()
	if w.steps.Load() != 3 || w.running.Load() != 0 {
		t.Errorf("%d steps, %d running", w.steps.Load(), w.running.Load())
	}
}
