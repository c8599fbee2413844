package sequencer

import (
	"slices"
	"testing"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// Two low attempts run for long, and one behind them is urgent: an idle worker must
// get that one, not the low one that came last.
func TestTheMostUrgentOfTheWaitingAttemptsIsStolenFirst(t *testing.T) {
	t.Parallel()
	name := func(i uint32) fsm.AttemptRef {
		return fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 1, Index: i}, Attempt: 1}
	}
	for what, x := range map[string]struct {
		started monoTime // of the first two
		want    []fsm.AttemptRef
	}{
		"the first two are known to run":      {5, []fsm.AttemptRef{name(3), name(4)}},
		"any of the first three may be begun": {0, []fsm.AttemptRef{name(4), name(2)}},
	} {
		w := &worker{prefetch: prefetch{slots: 2}}
		for i := range uint32(5) {
			h := w.held.add(name(i))
			h.number, h.priority = uint64(i+1), scheduler.Low
			if i < 2 {
				h.started = x.started
			}
			if i == 3 {
				h.priority = scheduler.Urgent
			}
		}
		b := &batch{number: 1}
		n := ask(b, w, scheduler.StealRequest{N: 2})
		if got := b.to(w).StealRequests; n != 2 || !slices.Equal(got, x.want) {
			t.Errorf("%s: asked for %v, want %v", what, got, x.want)
		}
	}
}
