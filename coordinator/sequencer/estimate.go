package sequencer

import (
	"cmp"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// A StartEstimate is when a pending task gets a slot, if no task of a higher priority
// becomes ready until then, and no worker joins or leaves.
type StartEstimate struct {
	From, To time.Duration // from Explanation.NowMS on
	// Doubt is why the range is unknown: a stable word, of which package api has the list.
	Doubt string
	Task  fsm.TaskRef // with few_samples: a task whose run time is not known
}

var doubts = map[scheduler.Doubt]string{
	scheduler.TooLarge: "too_many_attempts", scheduler.FewSamples: "few_samples", scheduler.NeverStarts: "never_starts",
	scheduler.RateLimited: "rate_limited",
}

// viewRunning copies what the workers hold, and what may run until its lease ends, for an estimate,
// unless it is too much.
func (s *Sequencer) viewRunning(b *batch, q *question) {
	leases := s.workers.leases.byRef
	ids, n, ok := q.view[0].Busy(len(leases))
	if !ok {
		return
	}
	list := make([]scheduler.RunningAttempt, 0, n+len(leases))
	// unordered: the estimate sorts them
	for a, x := range leases {
		list = append(list, scheduler.RunningAttempt{Class: x.class, Task: schedulerRef(a.TaskRef), EndsMS: x.until.Sub(b.now).Milliseconds()})
	}
	for _, id := range ids {
		w, known := s.workers.byID[fsm.WorkerID(id)], b.view.Worker(fsm.WorkerID(id))
		if w == nil || known == nil {
			continue
		}
		held := w.held.list
		if len(held) > int(known.Slots) { // else all of them have a slot
			held = slices.Clone(held)
			slices.SortFunc(held, compareStarts)
		}
		for i := range held {
			x := &held[i]
			a := scheduler.RunningAttempt{Worker: id, Class: x.class, Task: schedulerRef(x.TaskRef), RanMS: -1}
			if x.started != 0 || i < int(known.Slots) {
				a.RanMS = x.ranMS(b)
			}
			list = append(list, a)
		}
	}
	for _, v := range q.view {
		s.dispatch.sched.ViewRunning(v, list)
	}
}

// compareStarts orders attempts by when they get a slot.
func compareStarts(x, y held) int {
	switch {
	case x.startsBefore(&y):
		return -1
	case y.startsBefore(&x):
		return 1
	}
	return compareAttempts(x.AttemptRef, y.AttemptRef)
}

// ranMS is for how long an attempt has had a slot, as far as the leader knows: short
// attempts are not reported as started, and an earlier leader may have assigned it.
func (x *held) ranMS(b *batch) int64 {
	if x.number == 0 {
		t, _ := b.view.Task(x.TaskRef)
		return max(b.wall.UnixMilli()-t.StartedMS, 0)
	}
	return time.Duration(b.at - cmp.Or(x.started, x.assigned)).Milliseconds()
}

// estimate returns when the task of a view starts. runTimes has the latest run times of
// tasks like one; it returns the same list for tasks that are alike.
func (q *question) estimate(runTimes func(fsm.TaskRef) []time.Duration) StartEstimate {
	known := make(map[*time.Duration][]int64)
	e := q.view.Estimate(uint64(q.task.Job)<<32^uint64(q.task.Index), func(t scheduler.TaskRef) []int64 {
		list := runTimes(fsm.TaskRef{Job: fsm.JobID(t.Job), Index: t.Index})
		if len(list) == 0 {
			return nil
		}
		if known[&list[0]] == nil {
			for _, d := range list {
				known[&list[0]] = append(known[&list[0]], d.Milliseconds())
			}
		}
		return known[&list[0]]
	})
	return StartEstimate{
		From: ms(e.FromMS), To: ms(e.ToMS), Doubt: doubts[e.Doubt],
		Task: fsm.TaskRef{Job: fsm.JobID(e.Task.Job), Index: e.Task.Index},
	}
}
