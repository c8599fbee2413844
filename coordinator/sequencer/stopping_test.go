package sequencer

import (
	"testing"
	"time"

	"github.com/dtask/dtask/fsm"
)

// Each run of a schedule has a concurrency key: its end must not scan what all workers hold.
func BenchmarkTheEndOfAJobWithAKey(b *testing.B) {
	t := &workerTable{byID: make(map[fsm.WorkerID]*worker), stopping: make(map[fsm.JobID]int)}
	for id := range fsm.WorkerID(1000) {
		w := &worker{id: id}
		for i := range uint32(32) {
			w.held.add(held{AttemptRef: fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: fsm.JobID(id), Index: i}, Attempt: 1}})
		}
		t.byID[id] = w
	}
	k, at, job := newSharedKeys(), &batch{cfg: &Config{}, now: time.Now()}, &fsm.Job{ID: 1 << 40}
	for b.Loop() {
		k.stops(at, job, "key", t)
	}
}
