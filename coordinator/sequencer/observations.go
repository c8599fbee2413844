package sequencer

import (
	"maps"
	"sync"

	"github.com/dtask/dtask/fsm"
)

// observations are the running tasks that workers have reported. Short tasks
// are never reported as running. Safe for concurrent use.
type observations struct {
	mu sync.Mutex
	m  map[fsm.JobID]map[uint32]Observation // by job and task index; guarded by mu
}

// Observed returns the tasks of a job that were reported as running, by index.
func (s *Sequencer) Observed(id fsm.JobID) map[uint32]Observation {
	o := &s.workers.running
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.m[id])
}

func (o *observations) update(a fsm.AttemptRef, f func(*Observation)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	job := o.m[a.Job]
	if job == nil {
		job = make(map[uint32]Observation)
		o.m[a.Job] = job
	}
	x := job[a.Index]
	if x.Attempt != a.Attempt {
		x = Observation{Attempt: a.Attempt}
	}
	f(&x)
	job[a.Index] = x
}

func (o *observations) has(a fsm.AttemptRef) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	x, ok := o.m[a.Job][a.Index]
	return ok && x.Attempt == a.Attempt
}

// startedMS returns when the worker began an attempt, as far as it is known; else 0.
func (o *observations) startedMS(a fsm.AttemptRef) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if x, ok := o.m[a.Job][a.Index]; ok && x.Attempt == a.Attempt {
		return x.StartedMS
	}
	return 0
}

func (o *observations) forget(a fsm.AttemptRef) {
	o.mu.Lock()
	defer o.mu.Unlock()
	job := o.m[a.Job]
	if x, ok := job[a.Index]; ok && x.Attempt == a.Attempt {
		delete(job, a.Index)
		if len(job) == 0 {
			delete(o.m, a.Job)
		}
	}
}

func (o *observations) forgetJob(id fsm.JobID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.m, id)
}
