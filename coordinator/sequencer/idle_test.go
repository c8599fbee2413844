package sequencer

import (
	"testing"
	"time"

	"github.com/dtask/dtask/fsm"
)

// draftWorker puts a worker into the view, and into the state too if it is to be
// committed.
func draftWorker(t *testing.T, s *Sequencer, name string, commit bool) {
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

// sweep passes the time of a sweep, and reports whether the view became another
// state.
func sweep(s *Sequencer) bool {
	before := s.view
	s.sweeps.last = time.Now().Add(-2 * sweepInterval)
	s.shareMemory()
	return s.view != before
}

func TestTheViewSharesTheMemoryOfTheStateOnlyAtRest(t *testing.T) {
	t.Parallel()
	s := testSequencer(t)
	draftWorker(t, s, "a", true)
	if sweep(s) {
		t.Error("shared at the first sweep after a change")
	}
	s.pipe.slots <- struct{}{}
	s.pipe.slots <- struct{}{}
	if sweep(s) {
		t.Error("shared while an entry is on its way")
	}
	<-s.pipe.slots
	if !sweep(s) {
		t.Fatal("not shared at rest")
	}
	if sweep(s) {
		t.Error("shared again without a change")
	}
	digest := s.view.Digest()
	draftWorker(t, s, "b", false)
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		if st.Digest() != digest || st.WorkerByName("b") != nil || s.view.WorkerByName("b") == nil || s.view.WorkerByName("a") == nil {
			t.Error("what the view writes is in the state, or not in the view")
		}
	})
	sweep(s)
	if sweep(s) {
		t.Error("took over a state that is not that of the view")
	}
}
