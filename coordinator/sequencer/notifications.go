package sequencer

import (
	"context"

	"github.com/dtask/dtask/fsm"
)

// RecordDelivered records that notifications were delivered or dropped. items
// must fit into one entry: at most some thousands. Notifications that no longer
// exist are ignored. Errors: *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) RecordDelivered(ctx context.Context, items []fsm.Delivery) error {
	_, err := apply(ctx, s.inbox, classCancel, &fsm.RecordDelivered{Items: items}, func(*fsm.State) bool { return true })
	return err
}

// notify queues notifications for the tasks that became dead letters, in the
// entry in which they did, and reports new notifications after the commit.
func notify(b *batch) {
	if len(b.cfg.DeadLetterNotifications) > 0 && len(b.fx.Dead) > 0 {
		var o fsm.NotifyDeadLetters
		for _, t := range b.fx.Dead {
			for _, kind := range b.cfg.DeadLetterNotifications {
				o.Items = append(o.Items, fsm.DeadLetterNotification{Task: t, Kind: kind})
			}
		}
		b.entry.Do(&o)
	}
	if n := b.fx.NotificationsDropped; n > 0 {
		b.cfg.Totals.NotificationsDropped.Add(uint64(n)) //nolint:gosec // a count
		b.cfg.Logger.Warn("notification queue full; oldest notifications dropped", "dropped", n)
	}
	if b.fx.Notifications > 0 && !b.notifies {
		b.notifies = true
		b.then(func(_ uint64, err error) {
			if err == nil {
				b.cfg.NotificationsCommitted()
			}
		})
	}
}

// pendingNotifications returns the jobs that have undelivered notifications.
func pendingNotifications(v *fsm.State) map[fsm.JobID]bool {
	jobs := make(map[fsm.JobID]bool)
	for _, n := range v.Notifications(0) {
		jobs[n.Task.Job] = true
	}
	return jobs
}
