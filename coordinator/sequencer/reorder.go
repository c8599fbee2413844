package sequencer

import (
	"slices"

	"github.com/dtask/dtask/fsm"
)

// unschedule removes a task from the scheduler.
func (d *dispatcher) unschedule(ref fsm.TaskRef) {
	d.sched.Supersede(schedulerRef(ref))
	d.stale++
}

// supersedeRevived drops the entries of revived tasks of a job that may have been ready when they
// ended. A task starts as it was queued last: an earlier entry has the class, the worker to avoid
// and the place in the order that it had then. Those that are ready again are queued next, the
// others when they are. Nothing is superseded when a task ends: most entries are swept or reached
// soon, and most tasks that end are never revived.
func (d *dispatcher) supersedeRevived(b *batch, runs []fsm.TaskRun) {
	d.results.drop(runs)
	if len(runs) == 0 || d.sched.Len() == 0 {
		return
	}
	others, together := d.others(b, runs)
	if together {
		d.sched.SupersedeJob(uint64(runs[0].Job), others)
	}
	for _, run := range runs {
		if together {
			d.superseded += uint64(run.N) // at most: nobody knows how many entries there are
			continue
		}
		for i := range run.N {
			d.unschedule(fsm.TaskRef{Job: run.Job, Index: run.Index + i})
		}
	}
}

// If at least one in maxReadTasks of a job's tasks is reordered, the job is read, to find the ready
// tasks that are not: reading a task takes a few ns, reordering one by itself a µs.
const maxReadTasks = 64

// reorder queues ready tasks again after an update, mostly of one job, or removes those that must
// wait for a time now. How long they have been ready is not reset. The runs of a job are in the
// order of their indexes.
func (d *dispatcher) reorder(b *batch, runs []fsm.TaskRun) {
	d.reorderRuns(b, runs)
	for _, run := range runs {
		d.unscheduleReusable(run.Job)
	}
}

func (d *dispatcher) reorderRuns(b *batch, runs []fsm.TaskRun) {
	others, ok := d.others(b, runs)
	if !ok {
		for _, run := range runs {
			d.reorderEach(b, run)
		}
		return
	}
	d.sched.SupersedeJob(uint64(runs[0].Job), others)
	for _, run := range runs {
		d.superseded += uint64(run.N)
		for a := range b.view.UniformRuns(run) {
			if !d.rescheduleFresh(b, &a) {
				d.reorderEach(b, a.TaskRun)
			}
		}
	}
}

// others returns the ready tasks of a job that are not in some runs; ok is false if they are so
// many that the runs are rather reordered task by task.
func (d *dispatcher) others(b *batch, runs []fsm.TaskRun) (indexes []uint32, ok bool) {
	n := uint32(0)
	for _, run := range runs {
		n += run.N
	}
	if n == 0 || slices.ContainsFunc(runs, func(r fsm.TaskRun) bool { return r.Job != runs[0].Job }) {
		return nil, false
	}
	job, _ := b.view.Job(runs[0].Job)
	if n < job.Total/maxReadTasks || job.Counts[fsm.Pending] > n+n/8 {
		return nil, false
	}
	end := uint32(0)
	for _, run := range append(slices.Clip(runs), fsm.TaskRun{TaskRef: fsm.TaskRef{Job: job.ID, Index: job.Total}}) {
		for a := range b.view.UniformRuns(fsm.TaskRun{TaskRef: fsm.TaskRef{Job: job.ID, Index: end}, N: run.Index - end}) {
			for i := uint32(0); i < a.N && a.State == fsm.Pending; i++ {
				indexes = append(indexes, a.Index+i)
			}
		}
		end = run.Index + run.N
	}
	return indexes, true
}

func (d *dispatcher) reorderEach(b *batch, run fsm.TaskRun) {
	for i := range run.N {
		d.reorderTask(b, fsm.TaskRef{Job: run.Job, Index: run.Index + i})
	}
}

func (d *dispatcher) reorderTask(b *batch, ref fsm.TaskRef) {
	t, _ := b.view.Task(ref)
	if d.cleanups.holds(ref) {
		if t.State != fsm.Pending {
			delete(d.cleanups.until, ref)
		}
		return
	}
	d.unschedule(ref)
	if t.State != fsm.Pending {
		delete(d.waits.since, ref)
		return
	}
	d.schedule(b, ref, &t, d.policies.numbered(b.view, ref.Job, t.Policy))
}

// reorderJob queues all ready tasks of a job again after an update, in the order of their
// indexes. How long they have been ready is not reset. Entries of tasks that have ended are
// superseded, too: if such a task is resumed, it must not start by one of a class that the job
// has left.
func (d *dispatcher) reorderJob(b *batch, id fsm.JobID) {
	job, _ := b.view.Job(id)
	d.sched.SupersedeJob(uint64(id), nil)
	// Nobody knows how many entries of tasks that have ended there are: 1 stands for them.
	d.superseded += uint64(job.Counts[fsm.Pending]) + 1
	for a := range b.view.UniformRuns(fsm.TaskRun{TaskRef: fsm.TaskRef{Job: id}, N: job.Total}) {
		if a.State == fsm.Pending && !d.rescheduleFresh(b, &a) {
			d.rescheduleEach(b, a.TaskRun)
		}
	}
	d.unscheduleReusable(id)
}

// unscheduleReusable removes the tasks of a job that a cached result may end from the scheduler:
// they are queued when it has gone.
func (d *dispatcher) unscheduleReusable(id fsm.JobID) {
	for _, ref := range d.results.pending {
		if ref.Job == id {
			d.unschedule(ref)
		}
	}
}

// rescheduleFresh queues the tasks of a uniform run again in the time of one, and reports whether
// they are such that this can be done: they avoid no worker and wait for no others to end.
func (d *dispatcher) rescheduleFresh(b *batch, a *fsm.UniformRun) bool {
	if a.State != fsm.Pending || !a.Fresh || a.Cleanup {
		return false
	}
	p := d.policies.numbered(b.view, a.Job, a.Policy)
	d.sched.PushRun(schedulerRef(a.TaskRef), a.N, d.policies.classOf(b.view, a.TaskRef, p), p.priority)
	return true
}

// rescheduleEach queues ready tasks again, one by one.
func (d *dispatcher) rescheduleEach(b *batch, run fsm.TaskRun) {
	for i := range run.N {
		ref := fsm.TaskRef{Job: run.Job, Index: run.Index + i}
		if !d.cleanups.holds(ref) {
			t, _ := b.view.Task(ref)
			d.schedule(b, ref, &t, d.policies.numbered(b.view, ref.Job, t.Policy))
		}
	}
}
