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
	cfg    *Config
	timers *timers
	timed  map[fsm.JobID]bool // jobs that wait for their start time
	open   []fsm.JobID        // jobs that may start now, in order
	drift  time.Duration      // of the wall clock against the monotonic one when the timers were set
}

// rebuild prepares the timers of a job at the begin of a term. It proposes nothing.
func (g *gates) rebuild(b *batch, job *fsm.Job) {
	g.addExpiry(b, job)
	if job.Gated && !job.Waiting {
		g.wait(b, job.ID, job.StartMS())
	}
}

// wait sets the timer for the start of a job.
func (g *gates) wait(b *batch, id fsm.JobID, startMS int64) {
	g.timed[id] = true
	g.timers.add(timer{at: b.monotonic(startMS), kind: timerGate, task: fsm.TaskRef{Job: id}})
}

// reach is called for a job that waits for nothing but its gate, and when its start time may
// have come.
func (g *gates) reach(b *batch, id fsm.JobID) {
	delete(g.timed, id)
	job, ok := b.view.Job(id)
	if !ok || !job.Gated || job.Waiting {
		return
	}
	switch start := job.StartMS(); {
	case start > b.entry.NowMS(): // or the wall clock was set back
		g.wait(b, id, start)
	case !g.cfg.ClockAgrees():
		g.timers.add(timer{at: b.now.Add(g.cfg.TimeScale.Scale(gateRetry)), kind: timerGate, task: fsm.TaskRef{Job: id}})
	default:
		g.open = append(g.open, id)
	}
}

// run opens the gates of the jobs that may start, the oldest first.
func (g *gates) run(b *batch) {
	if len(g.open) == 0 {
		return
	}
	slices.Sort(g.open)
	n := 0
	for ; n < len(g.open) && !b.full(); n++ {
		b.entry.Do(&fsm.OpenGate{Job: g.open[n]}) // rejected if it was cancelled, or is listed twice
	}
	g.open = slices.Delete(g.open, 0, n)
}

// addExpiry sets the timer for the expiry of a job, if it has one.
func (g *gates) addExpiry(b *batch, job *fsm.Job) {
	if at := job.ExpiryMS(); at != 0 {
		g.timers.add(timer{at: b.monotonic(at), kind: timerExpiry, task: fsm.TaskRef{Job: job.ID}})
	}
}

// expire cancels a job that has not started in time. The timer is too early if the job was
// retried since, or the wall clock was set back.
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
		b.entry.Do(&fsm.ExpireJob{Job: id, Reason: fmt.Sprintf("expired: no task started within %v", within)})
	}
}

// sweep sets the timers of start times again if the wall clock was set. A job expires at the
// latest when its old timer fires.
func (g *gates) sweep(b *batch) {
	now := drift(b)
	if (now - g.drift).Abs() <= maxClockStep {
		return
	}
	g.drift = now
	for _, id := range slices.Sorted(maps.Keys(g.timed)) {
		g.reach(b, id)
	}
}
