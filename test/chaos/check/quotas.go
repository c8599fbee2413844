package check

import (
	"fmt"

	"github.com/dtask/dtask/fsm"
)

// quotas judges each entry of a log: an entry that assigns tasks of a queue leaves no more
// running tasks in it than its quota, and assigns none of a paused queue. A lower quota, or
// a job that was moved, may leave more running, but then nothing may be assigned.
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
	var given []fsm.JobID
	for _, op := range entry.Ops {
		switch op := op.(type) {
		case *fsm.Assign:
			for i := range op.Items {
				given = append(given, op.Items[i].Job)
			}
		case *fsm.AssignAlternative:
			for i := range op.Items {
				given = append(given, op.Items[i].Job)
			}
		}
	}
	if len(given) == 0 {
		return 0
	}
	q.machine.Read(func(s *fsm.State, _ uint64) { judged = q.judge(s, index, given, faults) })
	return judged
}

func (q *quotas) judge(s *fsm.State, index uint64, given []fsm.JobID, faults *list) (judged int) {
	starts := make(map[string]bool)
	for _, id := range given {
		if job, ok := s.Job(id); ok {
			q.open[id] = true
			starts[fsm.QueueOf(job.Header)] = true
		}
	}
	var running map[string]int
	for name := range starts {
		x := s.Queue(name)
		if x == nil || x.MaxRunning == 0 && !x.IsPaused() {
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
		case running[name] > int(x.MaxRunning):
			faults.add(Unexpected, where, "%d tasks run, and its quota is %d", running[name], x.MaxRunning)
			q.found = true
		}
	}
	return judged
}

// running counts the running tasks of each queue.
func (q *quotas) running(s *fsm.State) map[string]int {
	n := make(map[string]int)
	for id := range q.open {
		if job, ok := s.Job(id); ok && job.Counts[fsm.Assigned] > 0 {
			n[fsm.QueueOf(job.Header)] += int(job.Counts[fsm.Assigned])
		} else {
			delete(q.open, id)
		}
	}
	return n
}
