package logstore

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// timedDeletes is a Backend that takes a time per deleted entry.
type timedDeletes struct {
	Backend
	each  time.Duration
	steps []uint64
	next  uint64 // the first entry that is there
}

func (d *timedDeletes) FirstIndex() (uint64, error) { return d.next, nil }
func (d *timedDeletes) LastIndex() (uint64, error)  { return 1 << 20, nil }

func (d *timedDeletes) DeleteRange(first, last uint64) error {
	if first != d.next {
		return raft.ErrLogNotFound
	}
	time.Sleep(time.Duration(last-first+1) * d.each) //nolint:gosec // a small number
	d.steps, d.next = append(d.steps, last-first+1), last+1
	return nil
}

func TestCompactionStepsAreShortAndFillTheirTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		each  time.Duration
		steps []uint64
	}{
		{"small entries", 0, []uint64{32, 64, 128, 256, 512, 1024, 1024, 960}},
		{"large entries", 30 * time.Microsecond, []uint64{32, 64, 128, 128}},
		{"very large entries", time.Millisecond, []uint64{32, 32, 32, 32, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fatals{}
				d := &timedDeletes{each: c.each, next: 1}
				s := &Store{backend: d, hang: time.Minute, fatal: f.record}
				last := uint64(0)
				for _, n := range c.steps {
					last += n
				}
				start := time.Now()
				if err := s.DeleteRange(1, last); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(d.steps, c.steps) {
					t.Errorf("it deleted %d entries in steps of %d, want %d", last, d.steps, c.steps)
				}
				if deleting := time.Duration(last) * c.each; deleting > 0 && time.Since(start) == deleting { //nolint:gosec // a small number
					t.Error("it did not pause between two steps")
				}
			})
		})
	}
}

func TestACompactionStopsWhenTheStoreFails(t *testing.T) {
	t.Parallel()
	f := &fatals{}
	s := &Store{backend: &timedDeletes{next: 2}, hang: time.Minute, fatal: f.record}
	if err := s.compact(1, 5000); err == nil || len(f.all()) != 1 {
		t.Errorf("got %v and %v, want one failure that ends the process", err, f.all())
	}
}

// heldDeletes is a Backend whose first deletion waits for the test.
type heldDeletes struct {
	Backend
	steps   atomic.Int64
	begun   chan struct{} // closed when the deletion has started
	release chan struct{}
}

func (h *heldDeletes) DeleteRange(first, last uint64) error {
	if h.steps.Add(1) == 1 {
		close(h.begun)
		<-h.release
	}
	return h.Backend.DeleteRange(first, last)
}

func TestClosingAStoreStopsACompaction(t *testing.T) {
	t.Parallel()
	h, closing := &heldDeletes{begun: make(chan struct{}), release: make(chan struct{})}, make(chan struct{})
	s := openNew(t, t.TempDir(), func(cfg *Config) {
		cfg.Closing, cfg.Kind = closing, Bolt // the other store compacts in one step
		cfg.Wrap = func(b Backend) Backend { h.Backend = b; return h }
	})
	if err := s.StoreLogs(entries(1, 20*minDeleteStep)); err != nil {
		t.Fatal(err)
	}
	compacted := make(chan error, 1)
	go func() { compacted <- s.DeleteRange(1, 20*minDeleteStep-1) }()
	<-h.begun
	close(closing)
	close(h.release)
	if err := <-compacted; !errors.Is(err, ErrClosing) {
		t.Errorf("the compaction returned %v, want ErrClosing", err)
	}
	if n := h.steps.Load(); n != 1 {
		t.Errorf("the compaction continued for %d steps", n-1)
	}
}
