package sequencer_test

import (
	"fmt"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// times gives some jobs a start time, or lets them expire.
func (c *sim) times(h *dtaskv1.JobHeader) {
	if c.opts.Schedules == 0 {
		return // nobody raises the feature level
	}
	if c.chance(10) {
		h.StartAtMs = simEpoch.UnixMilli() + c.rng.Int64N(30_000)
	}
	if c.chance(10) {
		h.StartAfterMs = 1 + c.rng.Int64N(10_000)
	}
	if c.chance(20) {
		h.Concurrency = &dtaskv1.JobConcurrency{
			Key: fmt.Sprintf("key%d", c.rng.IntN(2)), Limit: uint32(c.rng.IntN(3)),
			Overlap: []dtaskv1.ScheduleOverlap{3, 3, 3, 4, 5}[c.rng.IntN(5)], // the others refuse jobs
		}
	}
	if c.chance(10) {
		h.ExpiresMs = 1000 + c.rng.Int64N(20_000)
	}
}

// beforeOpen checks that a job starts once, and not early by the clock of the leader.
func (l *simLedger) beforeOpen(s *fsm.State, e fsm.Entry, op *fsm.OpenGate, began time.Time) {
	job, ok := s.Job(op.Job)
	if ok && len(e.Ops) == 1 {
		l.c.clocks.notEarly(fmt.Sprintf("the start of job %d", op.Job), job.StartMS(), began)
	}
	if ok && len(e.Ops) == 1 && (!job.Gated || e.NowMS < job.StartMS()) {
		l.c.fail("the gate of job %d, which starts at %d, was opened at %d; closed before: %v", op.Job, job.StartMS(), e.NowMS, job.Gated)
	}
}

// beforeExpiry checks that no job expires of which a task has started, nor early by the clock
// of the leader.
func (l *simLedger) beforeExpiry(s *fsm.State, e fsm.Entry, op *fsm.ExpireJob, began time.Time) {
	job, ok := s.Job(op.Job)
	if ok && len(e.Ops) == 1 {
		l.c.clocks.notEarly(fmt.Sprintf("the expiry of job %d", op.Job), job.ExpiryMS(), began)
	}
	switch {
	case !ok || len(e.Ops) > 1: // it may have been retried in the same entry
	case job.StartedMS != 0 || job.ExpiryMS() == 0 || e.NowMS < job.ExpiryMS():
		l.c.fail("job %d, which started at %d and expires at %d, expired at %d", op.Job, job.StartedMS, job.ExpiryMS(), e.NowMS)
	}
	for i := range job.Total {
		if t := s.AttemptState(fsm.TaskRef{Job: op.Job, Index: i}); t.Attempt > 0 {
			l.c.fail("job %d expired after attempt %d of task %d", op.Job, t.Attempt, i)
		}
	}
}
