package sequencer

import (
	"testing"
	"time"

	"github.com/dtask/dtask/fsm"
)

// addWorker adds a worker to the view and, if commit is true, to the state.
func addWorker(t *testing.T, s *Sequencer, name string, commit bool) {
	t.Helper()
	b := s.batches.next(s.view)
	if r := b.entry.Do(&fsm.RegisterWorker{ID: s.view.NextWorker(), Name: name, Incarnation: "i", Slots: 1}); r != fsm.Accepted {
		t.Fatal(r)
	}
	entry, _, _ := b.entry.Finish()
	if !commit {
		return
	}
	s.cfg.Machine.Apply(s.cfg.Machine.Index()+1, fsm.Encode(nil, entry))
}

// sweep lets the time of a sweep pass, and reports whether the view was
// replaced.
func sweep(s *Sequencer) bool {
	before := s.view
	s.sweeps.last = time.Now().Add(-2 * sweepInterval)
	s.shareMemory()
	return s.view != before
}

func TestTheViewSharesTheMemoryOfTheStateOnlyWhenIdle(t *testing.T) {
	t.Parallel()
	s := testSequencer(t)
	addWorker(t, s, "a", true)
	if sweep(s) {
		t.Error("shared at the first sweep after a change")
	}
	s.pipe.slots <- struct{}{}
	s.pipe.slots <- struct{}{}
	if sweep(s) {
		t.Error("shared while an entry is in flight")
	}
	<-s.pipe.slots
	if !sweep(s) {
		t.Fatal("not shared when idle")
	}
	if sweep(s) {
		t.Error("shared again without a change")
	}
	digest := s.view.Digest()
	addWorker(t, s, "b", false)
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		if st.Digest() != digest || st.WorkerByName("b") != nil || s.view.WorkerByName("b") == nil || s.view.WorkerByName("a") == nil {
			t.Error("a write to the view is in the state, or missing in the view")
		}
	})
	sweep(s)
	if sweep(s) {
		t.Error("replaced the view by a different state")
	}
}

func TestTheIdleDetectorReportsAnUnchangedViewOnce(t *testing.T) {
	t.Parallel()
	var d idleDetector
	for i, x := range []struct {
		entries uint64
		want    bool
	}{{5, false}, {5, true}, {5, false}, {6, false}, {7, false}, {7, true}} {
		got := d.idle(x.entries)
		if got != x.want {
			t.Errorf("step %d with %d entries: got %v, want %v", i, x.entries, got, x.want)
		}
		if got {
			d.shared = x.entries
		}
	}
}
