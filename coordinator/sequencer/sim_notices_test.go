package sequencer_test

import (
	"context"
	"errors"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// simLetters are the notices that dead letters get, by simOptions.Letters.
var simLetters = [][]fsm.NotificationKind{nil, {fsm.DeadLetterWebhookNotification}, {fsm.DeadLetterCommandNotification}, {fsm.DeadLetterWebhookNotification, fsm.DeadLetterCommandNotification}}

// told is what the simulation has seen of notices.
type told struct {
	received map[uint64]bool // by whom it is for: he was told at least once
	last     uint64          // highest number given
}

// tell takes up the notices that the replica of a term knows of, as the notifier of
// a coordinator does: at the beginning of the term, and when it is woken.
func (t *simTerm) tell() {
	if t.over {
		return
	}
	if t.isFrozen() {
		t.c.at(t.frozen, t.tell)
		return
	}
	t.replica.machine.Read(func(s *fsm.State, _ uint64) {
		for _, n := range s.Notifications(0) {
			if !t.telling[n.Number] {
				t.telling[n.Number] = true
				t.c.after(t.c.upTo(4*t.c.opts.Lag), func() { t.post(n.Number) })
			}
		}
	})
}

// post tells somebody, who may not be there, or whose answer may get lost; then he
// is told again.
func (t *simTerm) post(number uint64) {
	c := t.c
	again := func() { c.after(50*time.Millisecond+c.upTo(2*time.Second), func() { t.post(number) }) }
	switch {
	case t.over:
		return
	case t.isFrozen():
		c.at(t.frozen, func() { t.post(number) })
		return
	case c.chance(20):
		again()
		return
	}
	c.note("told", number, t.number)
	c.told.received[number] = true
	if c.chance(10) {
		again()
		return
	}
	c.call(t, 5*time.Second, func(ctx context.Context, s *sequencer.Sequencer) error {
		return s.RecordDelivered(ctx, []fsm.Delivery{{Number: number, Delivered: true}})
	}, func(err error) {
		switch {
		case err == nil:
			c.log.truth.Read(func(s *fsm.State, _ uint64) {
				if s.HasNotification(number) {
					c.fail("that notice %d was told is acknowledged, and it waits still", number)
				}
			})
		case !errors.Is(err, sequencer.ErrTermEnded):
			again()
		}
	})
}

// wake lets those terms tell that have been woken.
func (c *sim) wake() {
	for _, t := range c.terms {
		if t.woken.Swap(false) {
			c.after(c.upTo(5*time.Millisecond), t.tell)
		}
	}
}

// noticesBefore looks at an entry before it is applied, for what must be told because
// of it. What it gives looks afterwards.
func (l *simLedger) noticesBefore(s *fsm.State, e fsm.Entry) func(*fsm.State) {
	before := make(map[fsm.JobID]fsm.Job)
	for job := range s.Jobs(0) {
		before[job.ID] = job
	}
	waiting := make(map[uint64]fsm.JobID)
	for _, n := range s.Notifications(0) {
		waiting[n.Number] = n.Task.Job
	}
	goesOn := make(map[fsm.JobID]bool)
	for _, op := range e.Ops {
		switch op := op.(type) {
		case *fsm.RecordDelivered:
			for _, it := range op.Items {
				if !l.told.received[it.Number] {
					l.c.fail("notice %d is taken for told, and nobody has heard of it", it.Number)
				}
				delete(waiting, it.Number)
			}
		case *fsm.Archive:
			l.archivesBeforeTold(op, waiting)
		case *fsm.Revive:
			goesOn[op.Job] = true
		case *fsm.Purge:
			goesOn[op.Job] = true
		}
	}
	return func(s *fsm.State) { l.noticesAfter(s, before, goesOn) }
}

// archivesBeforeTold: a job of which somebody has yet to be told stays.
func (l *simLedger) archivesBeforeTold(op *fsm.Archive, waiting map[uint64]fsm.JobID) {
	for _, id := range op.Items {
		for number, of := range waiting {
			if of == id {
				l.c.fail("job %d leaves, and notice %d of it has not been told", id, number)
			}
		}
	}
}

// noticesAfter: each end of a job with a webhook, and each dead letter, is to be told
// once, from the entry on that brought it about.
func (l *simLedger) noticesAfter(s *fsm.State, before map[fsm.JobID]fsm.Job, goesOn map[fsm.JobID]bool) {
	ends, letters := make(map[fsm.JobID]int), make(map[fsm.JobID]int)
	for _, n := range s.Notifications(l.told.last + 1) {
		l.told.last = n.Number
		if !n.Kind.OfJob() {
			letters[n.Task.Job]++
			continue
		}
		ends[n.Task.Job]++
		kind := map[fsm.JobState]fsm.NotificationKind{fsm.JobCompleted: fsm.JobCompletedNotification, fsm.JobFailed: fsm.JobFailedNotification, fsm.JobCancelled: fsm.JobCancelledNotification}
		if job, _ := s.Job(n.Task.Job); kind[job.State] != n.Kind && !goesOn[job.ID] {
			l.c.fail("job %d is %v, and to be told is %v", job.ID, job.State, n.Kind)
		}
	}
	for job := range s.Jobs(0) {
		was := before[job.ID]
		if goesOn[job.ID] {
			continue
		}
		want := 0
		if l.c.webhooks[job.Key] && job.State.Terminal() && !was.State.Terminal() {
			want = 1
		}
		if ends[job.ID] != want {
			l.c.fail("job %d was %v and is %v: %d ends are to be told, want %d", job.ID, was.State, job.State, ends[job.ID], want)
		}
		dead := int(job.Counts[fsm.Dead]) - int(was.Counts[fsm.Dead])
		if want := dead * len(simLetters[l.c.opts.Letters]); dead >= 0 && letters[job.ID] != want {
			l.c.fail("job %d has %d new dead letters: %d notices of them, want %d", job.ID, dead, letters[job.ID], want)
		}
	}
}

// everybodyWasTold is for the end of the simulation.
func (c *sim) everybodyWasTold() {
	for number := range c.told.last {
		if !c.told.received[number+1] {
			c.fail("notice %d was never told", number+1)
		}
	}
}
