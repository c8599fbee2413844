package sequencer

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
)

// gateRetry is how often a time is checked again that has come while the wall clock is in
// doubt.
const gateRetry = time.Second

// gates opens the gates of jobs when they may start, and cancels jobs that have not started
// in time. Which gates are open is in the replicated state; here are only timers: one for the
// start of a job and one for its expiry, however many tasks it has.
type gates struct {
	cfg     *Config
	timers  *timers
	workers *workerTable
	keys    sharedKeys
	timed   map[fsm.JobID]time.Time // jobs that wait for their start time, and when their timers fire
	arrived []fsm.JobID             // jobs whose start time has come
	offset  clockOffset             // when the timers were set
}

// rebuild takes a job at the begin of a term. It proposes nothing.
func (g *gates) rebuild(b *batch, job *fsm.Job) {
	g.addExpiry(b, job)
	g.take(b, job)
	if job.Gated {
		g.keys.rebuildEnded(b, job) // attempts from before a retry may still be stopping
	}
}

// fire executes the timer of a job.
func (g *gates) fire(b *batch, t timer) {
	if g.timed[t.task.Job].Equal(t.at) {
		delete(g.timed, t.task.Job)
	}
	g.reach(b, t.task.Job)
}

// reach is called for a job that waits for nothing but its gate, and when its start time may
// have come.
func (g *gates) reach(b *batch, id fsm.JobID) {
	if job, ok := b.view.Job(id); ok {
		g.take(b, &job)
	}
}

// take sets the timer for the start of a job, if it has a gate, or lets run open it.
func (g *gates) take(b *batch, job *fsm.Job) {
	switch start := job.StartMS(); {
	case !job.Gated || job.Waiting:
		delete(g.timed, job.ID)
	case start > b.entry.NowMS(): // or the wall clock was set back
		g.wait(job.ID, soon(b, b.monotonic(start)))
	default:
		delete(g.timed, job.ID)
		g.arrived = append(g.arrived, job.ID)
	}
}

// wait sets the timer of a job, unless there is an earlier one, which sets the next one: a
// wall clock that stands still must not add a timer with each sweep.
func (g *gates) wait(id fsm.JobID, at time.Time) {
	if set, ok := g.timed[id]; ok && !at.Before(set) {
		return
	}
	g.timed[id] = at
	g.timers.add(timer{at: at, kind: timerGate, task: fsm.TaskRef{Job: id}})
}

// run opens the gates of the jobs that may start, the oldest first.
func (g *gates) run(b *batch) {
	slices.Sort(g.arrived)
	n := 0
	for ; n < len(g.arrived) && !b.full(); n++ {
		job, ok := b.view.Job(g.arrived[n])
		switch key := fsm.ConcurrencyKey(job.Header); {
		case !ok || !job.Gated || job.Waiting: // it was cancelled meanwhile
		case job.StartMS() > b.entry.NowMS(): // the wall clock was set back since a full entry
			g.take(b, &job)
		case job.StartMS() != 0 && !g.cfg.ClockAgrees():
			g.timers.add(timer{at: b.now.Add(g.cfg.TimeScale.Scale(gateRetry)), kind: timerGate, task: fsm.TaskRef{Job: job.ID}})
		case key != "":
			g.keys.wait(key, job.ID)
		default:
			b.entry.Do(&fsm.OpenGate{Job: job.ID})
		}
	}
	g.arrived = slices.Delete(g.arrived, 0, n)
	g.keys.run(b, g)
}

// addExpiry sets the timer for the expiry of a job, if it has one.
func (g *gates) addExpiry(b *batch, job *fsm.Job) {
	if at := job.ExpiryMS(); at != 0 {
		g.timers.addJob(b, timerExpiry, job.ID, b.monotonic(at))
	}
}

// expire cancels a job that has not started in time. The timer is too early if that time was far
// ahead, the job was retried since, or the wall clock was set back.
func (g *gates) expire(b *batch, id fsm.JobID) {
	job, ok := b.view.Job(id)
	at := job.ExpiryMS()
	switch {
	case !ok || at == 0:
	case at > b.entry.NowMS():
		g.addExpiry(b, &job)
	case !g.cfg.ClockAgrees():
		g.timers.add(timer{at: b.now.Add(g.cfg.TimeScale.Scale(gateRetry)), kind: timerExpiry, task: fsm.TaskRef{Job: id}})
	default:
		within := time.Duration(job.Header.GetExpiresMs()) * time.Millisecond
		if b.entry.Do(&fsm.ExpireJob{Job: id, Reason: fmt.Sprintf("expired: no task started within %v", within)}) == fsm.Accepted {
			g.cfg.Totals.JobsExpired.Add(1)
		}
	}
}

// sweep sets the timers of start times again if the wall clock was set. A job expires at the
// latest when its old timer fires.
func (g *gates) sweep(b *batch) {
	if !g.offset.follow(b) {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(g.timed)) {
		g.reach(b, id)
	}
}
