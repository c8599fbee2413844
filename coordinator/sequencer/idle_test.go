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
