package sequencer_test

import (
	"context"
	"errors"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// simDeadLetters are the notifications of dead letters, by
// simOptions.DeadLetters.
var simDeadLetters = [][]fsm.NotificationKind{nil, {fsm.DeadLetterWebhookNotification}, {fsm.DeadLetterCommandNotification}, {fsm.DeadLetterWebhookNotification, fsm.DeadLetterCommandNotification}}

// simNotifications records notifications.
type simNotifications struct {
	received map[uint64]bool // received at least once
	last     uint64          // highest number
}

// notify delivers the notifications that the replica of a term has, like the
// notifier of a coordinator: at the start of the term, and when it is woken.
func (t *simTerm) notify() {
	if t.over {
		return
	}
	if t.isFrozen() {
		t.c.at(t.frozen, t.notify)
		return
	}
	t.replica.machine.Read(func(s *fsm.State, _ uint64) {
		for _, n := range s.Notifications(0) {
			if !t.telling[n.Number] {
				t.telling[n.Number] = true
				t.c.after(t.c.upTo(4*t.c.opts.Lag), func() { t.deliver(n.Number) })
			}
		}
	})
}

// deliver delivers a notification. The receiver may be unreachable, or its
// answer may get lost; then the delivery is repeated.
func (t *simTerm) deliver(number uint64) {
	c := t.c
	again := func() { c.after(50*time.Millisecond+c.upTo(2*time.Second), func() { t.deliver(number) }) }
	switch {
	case t.over:
		return
	case t.isFrozen():
		c.at(t.frozen, func() { t.deliver(number) })
		return
	case c.chance(20):
		again()
		return
	}
	c.note("notified", number, t.number)
	c.notified.received[number] = true
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
					c.fail("the delivery of notification %d was recorded, but it is still pending", number)
				}
			})
		case !errors.Is(err, sequencer.ErrTermEnded):
			again()
		}
	})
}

// wake delivers the notifications of terms that were woken.
func (c *sim) wake() {
	for _, t := range c.terms {
		if t.woken.Swap(false) {
			c.after(c.upTo(5*time.Millisecond), t.notify)
		}
	}
}

// notificationsBefore reads the state before an entry is applied; the returned
// function checks the notifications that the entry must cause.
func (l *simLedger) notificationsBefore(s *fsm.State, e fsm.Entry) func(*fsm.State) {
	before := make(map[fsm.JobID]fsm.Job)
	for job := range s.Jobs(0) {
		before[job.ID] = job
	}
	waiting := make(map[uint64]fsm.JobID)
	for _, n := range s.Notifications(0) {
		waiting[n.Number] = n.Task.Job
	}
	resumed := make(map[fsm.JobID]bool)
	for _, op := range e.Ops {
		switch op := op.(type) {
		case *fsm.RecordDelivered:
			for _, it := range op.Items {
				if !l.notified.received[it.Number] {
					l.c.fail("notification %d is recorded as delivered, but nobody received it", it.Number)
				}
				delete(waiting, it.Number)
			}
		case *fsm.Archive:
			l.archivesBeforeDelivery(op, waiting)
		case *fsm.Revive:
			resumed[op.Job] = true
		case *fsm.Purge:
			resumed[op.Job] = true
		}
	}
	return func(s *fsm.State) { l.notificationsAfter(s, before, resumed) }
}

// archivesBeforeDelivery checks that a job with pending notifications stays.
func (l *simLedger) archivesBeforeDelivery(op *fsm.Archive, waiting map[uint64]fsm.JobID) {
	for _, id := range op.Items {
		for number, of := range waiting {
			if of == id {
				l.c.fail("job %d leaves before its notification %d was delivered", id, number)
			}
		}
	}
}

// notificationsAfter checks that each end of a job with a webhook, and each
// dead letter, causes one notification in the entry that causes it.
func (l *simLedger) notificationsAfter(s *fsm.State, before map[fsm.JobID]fsm.Job, resumed map[fsm.JobID]bool) {
	ends, letters := make(map[fsm.JobID]int), make(map[fsm.JobID]int)
	for _, n := range s.Notifications(l.notified.last + 1) {
		l.notified.last = n.Number
		if !n.Kind.OfJob() {
			letters[n.Task.Job]++
			continue
		}
		ends[n.Task.Job]++
		kind := map[fsm.JobState]fsm.NotificationKind{fsm.JobCompleted: fsm.JobCompletedNotification, fsm.JobFailed: fsm.JobFailedNotification, fsm.JobCancelled: fsm.JobCancelledNotification}
		if job, _ := s.Job(n.Task.Job); kind[job.State] != n.Kind && !resumed[job.ID] {
			l.c.fail("job %d is %v but its notification is %v", job.ID, job.State, n.Kind)
		}
	}
	for job := range s.Jobs(0) {
		was := before[job.ID]
		if resumed[job.ID] {
			continue
		}
		want := 0
		if l.c.webhooks[job.Key] && job.State.Terminal() && !was.State.Terminal() {
			want = 1
		}
		if ends[job.ID] != want {
			l.c.fail("job %d was %v and is %v: %d notifications of its end, want %d", job.ID, was.State, job.State, ends[job.ID], want)
		}
		dead := int(job.Counts[fsm.Dead]) - int(was.Counts[fsm.Dead])
		if want := dead * len(simDeadLetters[l.c.opts.DeadLetters]); dead >= 0 && letters[job.ID] != want {
			l.c.fail("job %d has %d new dead letters: %d notifications, want %d", job.ID, dead, letters[job.ID], want)
		}
	}
}

// allDelivered checks at the end of the simulation that all notifications were
// delivered.
func (c *sim) allDelivered() {
	for number := range c.notified.last {
		if !c.notified.received[number+1] {
			c.fail("notification %d was never delivered", number+1)
		}
	}
}
