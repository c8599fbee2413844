package sequencer_test

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// simReady is since when a task is ready. Tasks of one batch have equal ages, except those that
// were ready when the term began: they have the order of their jobs and indexes.
type simReady struct {
	attempt uint32
	version uint32 // of the job
	queue   string
	require string // of the queue
	first   int    // it was ready then at the latest
	last    int    // it may have been put behind all others then
}

// simCandidate is a task that waits for nothing but a slot.
type simCandidate struct {
	ref          fsm.TaskRef
	queue        string
	owner        string
	priority     dtaskv1.Priority
	prefetchable bool
	last         int
}

// couldStart reports whether a candidate could have started in order on a worker that got another
// attempt instead.
func (c *simCandidate) couldStart(w *fsm.Worker, f *simFleet) bool {
	return !w.IsReserved() && (f.hasFreeSlot(w) || c.prefetchable && !f.isFull(w))
}

// look brings up to date since when tasks of a job are ready, and returns those that wait for
// nothing but a slot.
func (o *simOrder) look(s *fsm.State, job *fsm.Job, ordered bool) (list []simCandidate) {
	if job.Counts[fsm.Pending] == 0 {
		return nil
	}
	queue, require := queueOf(s, job)
	for i := range job.Total {
		ref := fsm.TaskRef{Job: job.ID, Index: i}
		attempt, ready := s.Ready(ref)
		if !ready {
			continue
		}
		at, known := o.since[ref]
		if !known || at.attempt != attempt {
			at = simReady{attempt: attempt, first: o.batch, last: o.batch}
		} else if at.version != job.Version || at.queue != queue || at.require != require || o.moved[queue] {
			at.last = o.batch
		}
		at.version, at.queue, at.require = job.Version, queue, require
		if o.since[ref] = at; ordered {
			o.batch++
		}
		if t, _ := s.Task(ref); require == "" && isPlain(s, job, &t) {
			list = append(list, candidate(job, &t, queue, at.last))
		}
	}
	return list
}

// setTwice returns the queues whose settings an entry changes more than once. What they require
// may be as before, although it was different for a moment, which put their tasks behind others.
func setTwice(e fsm.Entry) map[string]bool {
	sets, twice := make(map[string]int), make(map[string]bool)
	for _, op := range e.Ops {
		var name string
		switch op := op.(type) {
		case *fsm.SetQueue:
			name = op.Name
		case *fsm.DeleteQueue:
			name = op.Name
		default:
			continue
		}
		sets[name]++
		twice[name] = sets[name] > 1
	}
	return twice
}

// queueOf returns the queue of a job, and what it requires of workers; "" = nothing.
func queueOf(s *fsm.State, job *fsm.Job) (queue, require string) {
	queue = fsm.QueueOf(job.Header)
	if q := s.Queue(queue); q != nil && len(q.Require) > 0 {
		require = fmt.Sprint(q.Require)
	}
	return queue, require
}

// isPlain reports whether a ready task needs nothing but a slot, of any worker that is not reserved.
func isPlain(s *fsm.State, job *fsm.Job, t *fsm.Task) bool {
	p := job.Policy(t.Policy)
	a, ofArray := s.ArrayTask(fsm.TaskRef{Job: job.ID, Index: t.Index})
	return !t.Cleanup && !job.Gated && !slices.Contains(job.NeedEnds, 0) && (!ofArray || a.MaxParallel == 0) &&
		len(p.GetResources())+len(p.GetAlternatives())+len(p.GetRequire())+len(p.GetRules())+len(p.GetUses()) == 0 &&
		p.GetAffinity() == "" && p.GetReuseMs() == 0 && p.GetQueueTimeoutMs() == 0
}

func candidate(job *fsm.Job, t *fsm.Task, queue string, last int) simCandidate {
	return simCandidate{
		ref: fsm.TaskRef{Job: job.ID, Index: t.Index}, queue: queue, owner: job.Header.GetOwner(), priority: priorityOfTask(job, t), last: last,
		prefetchable: job.Policy(t.Policy).GetExecution() != dtaskv1.Execution_EXECUTION_AT_MOST_ONCE,
	}
}

func priorityOfTask(job *fsm.Job, t *fsm.Task) dtaskv1.Priority {
	return cmp.Or(job.Policy(t.Policy).GetPriority(), job.Header.GetPriority(), dtaskv1.Priority_PRIORITY_NORMAL)
}

// simStart is a start within a batch.
type simStart struct {
	it         fsm.AssignItem
	job        fsm.Job
	queue      string
	priority   dtaskv1.Priority
	first      int
	candidates []simCandidate // itself, if it could have been one
}

// starts returns what an entry assigns, in order.
func (o *simOrder) starts(e fsm.Entry, v *fsm.State) (list []simStart) {
	for _, op := range e.Ops {
		switch op := op.(type) {
		case *fsm.Assign:
			for _, it := range op.Items {
				list = o.addStart(list, it, v)
			}
		case *fsm.AssignAlternative:
			for _, it := range op.Items {
				list = o.addStart(list, fsm.AssignItem(it.HeldAttempt), v)
			}
		}
	}
	return list
}

func (o *simOrder) addStart(list []simStart, it fsm.AssignItem, v *fsm.State) []simStart {
	job, ok := v.Job(it.Job)
	t, _ := v.Task(it.TaskRef)
	if !ok || t.Attempt != it.Attempt {
		return list
	}
	queue, require := queueOf(v, &job)
	x := simStart{it: it, job: job, queue: queue, priority: priorityOfTask(&job, &t), first: o.batch}
	last := o.batch
	if at, known := o.since[it.TaskRef]; known && at.attempt+1 == it.Attempt {
		x.first = at.first
		if at.version == job.Version && at.queue == queue && at.require == require && !o.moved[queue] {
			last = at.last
		}
	}
	if require == "" && isPlain(v, &job, &t) {
		x.candidates = []simCandidate{candidate(&job, &t, queue, last)}
	}
	delete(o.since, it.TaskRef)
	return append(list, x)
}

// candidates returns the tasks that wait, and those that start later in the same batch.
func candidates(waiting []simCandidate, later []simStart) []simCandidate {
	list := slices.Clip(waiting)
	for i := range later {
		list = append(list, later[i].candidates...)
	}
	return list
}
