package sequencer

import (
	"cmp"

	"github.com/dtask/dtask/fsm"
)

// SoftState is what a term knows after a batch.
type SoftState struct {
	View    *fsm.State
	Running map[string]int               // attempts by queue, also those of workers that are lost
	Held    map[fsm.WorkerID]int         // attempts by worker
	Ending  map[fsm.WorkerID]bool        // workers where attempts end for urgent tasks
	Kept    map[fsm.TaskRef]fsm.WorkerID // workers that are kept free, by the task for which they are
	Saved   map[string]bool              // queues that save quotas for a task
}

// Soft returns the soft state. Only the goroutine of the term may call it, between two batches.
func (s *Sequencer) Soft() SoftState {
	soft := SoftState{View: s.view, Running: map[string]int{}, Held: map[fsm.WorkerID]int{}, Ending: map[fsm.WorkerID]bool{}, Kept: map[fsm.TaskRef]fsm.WorkerID{}, Saved: map[string]bool{}}
	for name, l := range s.dispatch.sched.Loads() { // unordered: the result is a map
		soft.Running[cmp.Or(name, fsm.DefaultQueue)] = l.Running
	}
	for id, w := range s.workers.byID { // unordered: the result is a map
		soft.Held[id] = w.held.len()
		for i := range w.held.list {
			if w.held.list[i].preempted {
				soft.Ending[id] = true
			}
		}
	}
	for _, k := range s.dispatch.sched.Reservations() {
		soft.Kept[fsm.TaskRef{Job: fsm.JobID(k.Task.Job), Index: k.Task.Index}] = fsm.WorkerID(k.Worker)
	}
	for _, x := range s.dispatch.sched.Savings() {
		soft.Saved[cmp.Or(x.Queue, fsm.DefaultQueue)] = true
	}
	return soft
}
