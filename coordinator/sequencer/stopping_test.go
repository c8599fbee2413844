package sequencer

import (
	"fmt"
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
			w.held.add(fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: fsm.JobID(id), Index: i}, Attempt: 1})
		}
		t.byID[id] = w
	}
	k, at, job := newSharedKeys(), &batch{cfg: &Config{}, now: time.Now()}, &fsm.Job{ID: 1 << 40}
	for b.Loop() {
		k.stops(at, job, "key", t)
	}
}

// Schedules that replace their runs at the same tick have as many keys and as many jobs that stop.
func TestKeysThatMayBeFreeAreCheckedInOneCycle(t *testing.T) {
	t.Parallel()
	s, err := New(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	b := s.batches.next(s.view)
	const keys = 20_000
	for id := range fsm.JobID(keys) {
		key := fmt.Sprint(id)
		s.workers.stopping[id] = 1
		s.gates.keys.stopping[id] = stoppingJob{key, b.now.Add(time.Minute)}
		s.gates.keys.wait(key, id+keys)
	}
	began := time.Now()
	s.gates.keys.run(b, &s.gates)
	if took := time.Since(began); took > 20*time.Second { // some ms, and half a minute if each key reads all jobs
		t.Errorf("the leader stops for %v", took)
	}
}

// BenchmarkStoppingJobs measures what jobs with a concurrency key that stop add to each cycle.
func BenchmarkStoppingJobs(b *testing.B) {
	s, err := New(testConfig())
	if err != nil {
		b.Fatal(err)
	}
	batch := s.batches.next(s.view)
	for id := range fsm.JobID(20_000) {
		s.workers.stopping[id] = 1
		s.gates.keys.stopping[id] = stoppingJob{fmt.Sprint(id), batch.now.Add(time.Minute)}
	}
	for b.Loop() {
		s.gates.keys.run(batch, &s.gates)
	}
}
