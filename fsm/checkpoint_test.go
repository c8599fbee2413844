package fsm

import (
	"bytes"
	"testing"
)

func saves(h HeldAttempt, number uint32, data string) *Checkpoint {
	return &Checkpoint{HeldAttempt: h, Saved: SavedCheckpoint{Number: number, Format: DataCheckpoint, Data: []byte(data), Size: int64(len(data))}}
}

func (w *world) saved(t TaskRef) string {
	w.t.Helper()
	c, ok := w.s.Checkpoint(t)
	if !ok {
		return "none"
	}
	return string(c.Data)
}

func TestACheckpointGoesFromAttemptToAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do(worker(1), worker(2))
	w.submit(plan(nil, nil))
	first := w.assign(0, 1)
	w.do(saves(first, 1, "a")).do(saves(first, 3, "c"))
	for _, repeated := range []uint32{1, 3, 2} {
		if r := w.try(saves(first, repeated, "x")); r != AlreadyAccepted {
			t.Errorf("number %d again: got %v", repeated, r)
		}
	}
	w.do(&RequeueLost{Items: []HeldAttempt{first}})
	if got := w.saved(ref(1, 0)); got != "c" {
		t.Errorf("after the loss of the worker: got checkpoint %q", got)
	}
	second := w.assign(0, 2)
	if r := w.try(saves(first, 4, "zombie")); r != StaleAttempt {
		t.Errorf("saved by an attempt that is not live: got %v", r)
	}
	w.do(saves(second, 1, "d")).do(failed(second, NextRetry))
	sameState(t, "restored", restored(t, snapshotOf(t, w.s)), w.s)
	if got := w.saved(ref(1, 0)); got != "d" {
		t.Errorf("after a failure: got checkpoint %q", got)
	}
	w.do(&Due{Items: []AttemptRef{second.AttemptRef}})
	w.do(complete(w.assign(0, 1)))
	if got := w.saved(ref(1, 0)); got != "none" || w.s.CheckpointBytes() != 0 {
		t.Errorf("after the end: got checkpoint %q, %d bytes in all", got, w.s.CheckpointBytes())
	}
}

func TestCheckpointsHaveABudget(t *testing.T) {
	t.Parallel()
	const tasks = maxCheckpoints/maxCheckpoint + 1
	w := newWorld(t)
	w.do(worker(1))
	w.submit(plan(make([][]uint32, tasks)...))
	large := SavedCheckpoint{Number: 1, Format: DirectoryCheckpoint, Data: make([]byte, maxCheckpoint), Size: maxCheckpoint}
	var refused HeldAttempt
	for i := range uint32(tasks) {
		h := hold(1, i, 1, 1)
		e := Entry{NowMS: 1, Ops: []Op{&Assign{Items: []AssignItem{AssignItem(h)}}, &Checkpoint{HeldAttempt: h, Saved: large}}}
		if r := w.s.Apply(e, nil); r == BudgetExceeded {
			refused = h
			break
		} else if r != Accepted {
			t.Fatalf("task %d: %v", i, r)
		}
	}
	if refused.Attempt == 0 || w.s.CheckpointBytes() > maxCheckpoints {
		t.Fatalf("got %d bytes", w.s.CheckpointBytes())
	}
	again := large
	again.Number, again.Data = 2, bytes.Repeat([]byte{1}, maxCheckpoint)
	w.do(&Checkpoint{HeldAttempt: hold(1, 0, 1, 1), Saved: again}) // takes no more space
	w.do(&CancelTask{Task: ref(1, 1)}, &Checkpoint{HeldAttempt: refused, Saved: large})
}
