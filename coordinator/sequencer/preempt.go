package sequencer

import (
	"cmp"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler"
)

const (
	// maxPreempted is how often a task is preempted at most.
	maxPreempted = 3
	// minPreemptInterval is the time between two looks for urgent tasks that may take the places of
	// others. It doubles until one is found, up to sweepInterval.
	minPreemptInterval = 10 * time.Millisecond
)

// preemption stops preemptible attempts for urgent tasks that have waited for a second. The
// scheduler chooses the worker, and how many attempts of each class and priority; here, these are
// those that began last, which lose least. A stopped attempt is requeued without counting as
// a retry, as after a drain.
type preemption struct {
	sched    *scheduler.Scheduler
	workers  *workerTable
	since    time.Time // when the term began
	nextAt   time.Time
	interval time.Duration
}

// next returns when to look again; ok is false if no task can take the place of another.
func (x *preemption) next() (at time.Time, ok bool) { return x.nextAt, x.sched.MayPreempt() }

func (x *preemption) run(b *batch) {
	if !x.sched.MayPreempt() || b.now.Before(x.nextAt) || b.full() {
		return // a full batch is followed by another immediately
	}
	x.interval = min(max(2*x.interval, minPreemptInterval), sweepInterval)
	began := time.Now()
	if !x.workersReturn(b.now) {
		for _, p := range x.sched.Preempt(isReady(b.view), x.isEnding) {
			x.interval = minPreemptInterval
			for _, y := range p.Yields {
				x.end(b, &p, y)
			}
		}
	}
	// With many workers, it takes a tenth of the leader's time at most.
	x.nextAt = b.now.Add(max(x.interval, 10*time.Since(began)))
}

// workersReturn reports whether workers that had a session with the last leader may still be about to
// return to this one, with free slots.
func (x *preemption) workersReturn(now time.Time) bool {
	if now.Sub(x.since) > x.workers.cfg.LivenessTimeout {
		return false
	}
	for _, w := range x.workers.byID { // unordered: any of them decides
		if w.session == nil {
			return true
		}
	}
	return false
}

// isEnding reports whether a worker holds attempts that end for an urgent task.
func (x *preemption) isEnding(id scheduler.WorkerID) bool { return x.ends(id) > 0 }

// ends returns how many attempts that a worker holds end for an urgent task. What it does not end in
// time, it may never end.
func (x *preemption) ends(id scheduler.WorkerID) (n int) {
	if w := x.workers.byID[fsm.WorkerID(id)]; w != nil {
		for i := range w.held.list {
			if a := &w.held.list[i]; a.preempted && !a.stopped {
				n++
			}
		}
	}
	return n
}

// endsFor returns the worker that is kept for a task, and how many attempts end there for it; 0
// without any.
func (x *preemption) endsFor(t fsm.TaskRef) (fsm.WorkerID, int) {
	for _, k := range x.sched.Reservations() {
		if n := x.ends(k.Worker); n > 0 && k.Task == schedulerRef(t) {
			return fsm.WorkerID(k.Worker), n
		}
	}
	return 0, 0
}

// end stops attempts of a class and priority, or like these: those first that have not started, and
// of the others those that began last.
func (x *preemption) end(b *batch, p *scheduler.Preemption, y scheduler.Yield) {
	w := x.workers.byID[fsm.WorkerID(p.Worker)]
	var list []*held
	for i := range w.held.list {
		if a := &w.held.list[i]; a.yields && a.priority == y.Priority && x.sched.YieldsAlike(a.class, y.Class) {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b *held) int {
		if (a.started == 0) != (b.started == 0) {
			return cmp.Compare(min(a.started, 1), min(b.started, 1))
		}
		return cmp.Or(cmp.Compare(x.workers.running.startedMS(b.AttemptRef), x.workers.running.startedMS(a.AttemptRef)),
			cmp.Compare(b.number, a.number), compareAttempts(a.AttemptRef, b.AttemptRef))
	})
	for _, a := range list[:min(y.N, len(list))] {
		w.held.end(a, ending{since: b.at, by: fsm.JobID(p.Task.Job)})
		x.workers.keepsPlace(w, a)
		b.stop(w, a.AttemptRef, dtaskv1.StopReason_STOP_REASON_PREEMPTED)
		b.cfg.Totals.Preemptions.Add(1)
		b.cfg.Logger.Info("attempt preempted", "job_id", uint64(a.Job), "task_id", b.view.Name(a.TaskRef), "attempt", a.Attempt,
			"worker", w.name, "worker_id", uint32(w.id), "for_job_id", p.Task.Job)
	}
}

// mayYield notes that an attempt may end for an urgent task, if it may.
//
// A task ends so at most maxPreempted times: of its earlier attempts, those that neither failed nor
// were lost were released, for this reason or another.
func (t *workerTable) mayYield(v *fsm.State, w *worker, x *held) {
	if x.yields || x.stopped || x.ends || x.priority >= scheduler.Urgent || !t.sched.IsPreemptible(x.class) {
		return
	}
	task, ok := v.Task(x.TaskRef)
	if released := int64(x.Attempt) - 1 - int64(task.Failures) - int64(task.Losses); !ok || task.Attempt != x.Attempt || released >= maxPreempted {
		return
	}
	x.yields = true
	t.sched.Yields(scheduler.WorkerID(w.id), x.class, x.priority, 1)
}

// keepsPlace notes that an attempt ends for no urgent task any more: it is gone, or ends already.
func (t *workerTable) keepsPlace(w *worker, x *held) {
	if x.yields {
		x.yields = false
		t.sched.Yields(scheduler.WorkerID(w.id), x.class, x.priority, -1)
	}
}

// isReleased reports whether an attempt ended because its worker was asked to end it. Workers that
// do not know preemption take it for a cancellation.
func isReleased(o *columns.Outcome) bool {
	k := o.Detail.GetKind()
	return k == dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED || k == dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED
}

// requeuePreempted makes the task of an attempt that was stopped for an urgent one ready again, and
// keeps the reason in its history. It does not name the urgent task, whose job those who see the
// history may not be allowed to see.
func requeuePreempted(b *batch, h fsm.HeldAttempt, tookMS uint32) fsm.Reason {
	if b.view.Live(h) && !b.view.Stops(h.TaskRef) {
		it := fsm.FailItem{
			HeldAttempt: h, DurationMS: tookMS, Next: fsm.NextRetry, Due: b.entry.NowMS(),
			Error: "preempted: an urgent task took its place",
		}
		if r := b.entry.Fail(it); r == fsm.Accepted {
			b.cfg.Totals.Requeues.Add(1)
			return r
		}
	}
	return requeue(b, h, false)
}
