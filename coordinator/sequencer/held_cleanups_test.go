package sequencer

import (
	"slices"
	"testing"
	"time"

	"github.com/dtask/dtask/fsm"
)

func TestHeldCleanupsAreReleasedInOrderWhenNothingStops(t *testing.T) {
	t.Parallel()
	now := time.Now()
	h := heldCleanups{until: make(map[fsm.TaskRef]time.Time)}
	stopping := map[fsm.JobID]bool{1: true, 2: true}
	isStopping := func(id fsm.JobID) bool { return stopping[id] }
	b := &batch{cfg: &Config{StopTimeout: time.Minute}, now: now}
	for _, ref := range []fsm.TaskRef{{Job: 2, Index: 7}, {Job: 1, Index: 9}, {Job: 1, Index: 8}} {
		if !h.hold(b, ref, isStopping) {
			t.Errorf("%v is not held while an attempt stops", ref)
		}
	}
	if h.hold(b, fsm.TaskRef{Job: 3}, isStopping) {
		t.Error("a cleanup task is held although nothing stops")
	}
	if got := h.due(now.Add(time.Second), isStopping); len(got) != 0 {
		t.Errorf("released %v while their attempts stop", got)
	}
	stopping[1] = false
	if got, want := h.due(now, isStopping), []fsm.TaskRef{{Job: 1, Index: 8}, {Job: 1, Index: 9}}; !slices.Equal(got, want) {
		t.Errorf("released %v, want %v", got, want)
	}
	if got, want := h.due(now.Add(time.Minute), isStopping), []fsm.TaskRef{{Job: 2, Index: 7}}; !slices.Equal(got, want) {
		t.Errorf("released %v after the stop timeout, want %v", got, want)
	}
	if h.holds(fsm.TaskRef{Job: 2, Index: 7}) {
		t.Error("a released task is still held")
	}
}
