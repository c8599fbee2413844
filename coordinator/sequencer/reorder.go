package sequencer

import "github.com/dtask/dtask/fsm"

// unschedule removes a task from the scheduler.
func (d *dispatcher) unschedule(ref fsm.TaskRef) {
	d.sched.Supersede(schedulerRef(ref))
	d.stale++
}

// reorder queues ready tasks again after an update, or removes those that must
// wait for a time now. How long they have been ready is not reset.
func (d *dispatcher) reorder(b *batch, run fsm.TaskRun) {
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
	d.sched.SupersedeJob(uint64(id))
	// Nobody knows how many entries of tasks that have ended there are: 1 stands for them.
	d.superseded += uint64(job.Counts[fsm.Pending]) + 1
	for a := range b.view.UniformRuns(fsm.TaskRun{TaskRef: fsm.TaskRef{Job: id}, N: job.Total}) {
		switch {
		case a.State != fsm.Pending:
		case a.Fresh && !a.Cleanup:
			p := d.policies.numbered(b.view, id, a.Policy)
			d.sched.PushRun(schedulerRef(a.TaskRef), a.N, d.policies.classOf(b.view, a.TaskRef, p), p.priority)
		default:
			d.rescheduleEach(b, a.TaskRun)
		}
	}
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
