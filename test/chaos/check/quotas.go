package check

import (
	"fmt"

	"github.com/dtask/dtask/fsm"
)

// quotas judges each entry of a log: an entry that assigns tasks of a queue leaves no more
// running tasks in it than its quota, none that take more of a resource than its quota on that,
// and assigns none of a paused queue. A lower quota, or a job that was moved, may leave more
// running, but then nothing may be assigned.
type quotas struct {
	replica string
	machine *fsm.Machine
	open    map[fsm.JobID]bool // jobs that may have running tasks
	found   bool               // a fault: all later ones would follow from it
}

// newQuotas begins at the present state of a machine.
func newQuotas(replica string, m *fsm.Machine) *quotas {
	q := &quotas{replica: replica, machine: m, open: make(map[fsm.JobID]bool)}
	m.Read(func(s *fsm.State, _ uint64) {
		for job := range s.Jobs(0) {
			if job.Counts[fsm.Assigned] > 0 {
				q.open[job.ID] = true
			}
		}
	})
	return q
}

// applied judges an entry that was applied as a whole, and returns the number of queues with
// a quota or a pause in which it assigned tasks.
func (q *quotas) applied(index uint64, data []byte, faults *list) (judged int) {
	entry, err := fsm.Decode(data)
	if err != nil || q.found {
		return 0 // the former was reported
	}
	var given []fsm.TaskRef
	for _, op := range entry.Ops {
		switch op := op.(type) {
		case *fsm.Assign:
			for i := range op.Items {
				given = append(given, op.Items[i].TaskRef)
			}
		case *fsm.AssignAlternative:
			for i := range op.Items {
				given = append(given, op.Items[i].TaskRef)
			}
		}
	}
	if len(given) == 0 {
		return 0
	}
	q.machine.Read(func(s *fsm.State, _ uint64) { judged = q.judge(s, index, given, faults) })
	return judged
}

func (q *quotas) judge(s *fsm.State, index uint64, given []fsm.TaskRef, faults *list) (judged int) {
	starts := make(map[string]map[string]int64) // what the assigned tasks of each queue take
	for _, ref := range given {
		if job, ok := s.Job(ref.Job); ok {
			q.open[ref.Job] = true
			name := fsm.QueueOf(job.Header)
			if starts[name] == nil {
				starts[name] = make(map[string]int64)
			}
			take(s, &job, ref.Index, starts[name])
		}
	}
	var running map[string]*load
	for name, taken := range starts {
		x := s.Queue(name)
		if x == nil || x.MaxRunning == 0 && len(x.Max) == 0 && !x.IsPaused() {
			continue
		}
		judged++
		if running == nil {
			running = q.running(s)
		}
		where := fmt.Sprintf("queue %s, entry %d of %s", name, index, q.replica)
		switch {
		case x.IsPaused():
			faults.add(Unexpected, where, "tasks were assigned although it is paused")
			q.found = true
		case x.MaxRunning > 0 && running[name].tasks > int(x.MaxRunning):
			faults.add(Unexpected, where, "%d tasks run, and its quota is %d", running[name].tasks, x.MaxRunning)
			q.found = true
		}
		for _, r := range x.Max {
			if taken[r.Name] > 0 && running[name].taken[r.Name] > r.Amount {
				faults.add(Unexpected, where, "tasks take %d thousandths of %s, and its quota is %d", running[name].taken[r.Name], r.Name, r.Amount)
				q.found = true
			}
		}
	}
	return judged
}

// load is what runs in a queue.
type load struct {
	tasks int
	taken map[string]int64 // of each resource, in thousandths; empty if the queue has no quota on one
}

// running returns what runs in each queue with running tasks.
func (q *quotas) running(s *fsm.State) map[string]*load {
	all := make(map[string]*load)
	for id := range q.open {
		job, ok := s.Job(id)
		if !ok || job.Counts[fsm.Assigned] == 0 {
			delete(q.open, id)
			continue
		}
		name := fsm.QueueOf(job.Header)
		if all[name] == nil {
			all[name] = &load{taken: make(map[string]int64)}
		}
		all[name].tasks += int(job.Counts[fsm.Assigned])
		if x := s.Queue(name); x == nil || len(x.Max) == 0 {
			continue
		}
		for i := range job.Total {
			if t, _ := s.Task(fsm.TaskRef{Job: id, Index: i}); t.State == fsm.Assigned {
				take(s, &job, i, all[name].taken)
			}
		}
	}
	return all
}

// take adds what the last attempt of a task takes of each resource.
func take(s *fsm.State, job *fsm.Job, index uint32, to map[string]int64) {
	t, _ := s.Task(fsm.TaskRef{Job: job.ID, Index: index})
	policy := job.Policy(t.Policy)
	resources := policy.GetResources()
	if t.Alternative > 0 {
		resources = policy.GetAlternatives()[t.Alternative-1].GetResources()
	}
	for name, amount := range resources {
		to[name] += amount
	}
}
