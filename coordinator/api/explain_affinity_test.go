package api

import (
	"testing"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestTheLoadOfAWorkerIsShownInSlots(t *testing.T) {
	t.Parallel()
	for permille, want := range map[int64]string{0: "load 0.00", 1250: "load 1.25", 2009: "load 2.00", 12_340: "load 12.34"} {
		if got := loadText(&dtaskv1.Reason{Free: permille}); got != want {
			t.Errorf("%d: got %q, want %q", permille, got, want)
		}
	}
}

func TestTheWorkerThatAnAffinityChoosesIsNamed(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.inAllStates(t)
	key := sequencer.Affinity{Worker: 1, Permille: 1250, Busy: true, Until: 1_700_000_000_000}
	r.leader.explain = func(e *sequencer.Explanation) {
		if e.State == fsm.Assigned {
			e.Attached, e.Spilled = true, key
			return
		}
		e.Capacity = capacityOf(&sequencer.Capacity{
			Waits: key.Busy, Fits: !key.Busy, EverFits: true, Complete: true, Affinity: key,
			Changes: []sequencer.StartChange{{Code: "add_slots", Worker: 1, Amount: 1}, {Code: "drop_affinity"}},
		})
	}
	for name, want := range map[string]string{
		"run":     "waits_for_key_worker: it waits for worker w1 (load 1.25), which its affinity chooses, while others are idle at most until 2023-11-14 22:13:20Z",
		"running": "running: attempt 1 runs on worker w1, 42 % done: half\nspilled: spilled from w1 (load 1.25)",
	} {
		if _, got := r.explainTask(t, name); got != want {
			t.Errorf("task %s: got\n%s\nwant\n%s", name, got, want)
		}
	}
	key.Busy = false
	if _, got := r.explainTask(t, "run"); got != "being_assigned: a worker can take it: it is about to be assigned" {
		t.Errorf("with a free worker: got %s", got)
	}
}
