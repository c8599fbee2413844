package sequencer

import (
	"context"

	"github.com/dtask/dtask/fsm"
)

// Told records that notices were delivered or given up; items are at most some
// thousands, so that they fit into an entry. Notices that are not there any more
// are no error. Errors: *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) RecordDelivered(ctx context.Context, items []fsm.Delivery) error {
	gone := func() bool { return true }
	_, err := s.request(ctx, classCancel, &fsm.RecordDelivered{Items: items}, gone)
	return err
}

// notices asks for notices of the tasks that became dead letters, in the entry
// in which they did, and wakes whoever tells them once it is committed.
func (s *Sequencer) notices(b *batch) {
	if len(s.cfg.DeadLetterNotifications) > 0 && len(b.fx.Dead) > 0 {
		var o fsm.NotifyDeadLetters
		for _, t := range b.fx.Dead {
			for _, kind := range s.cfg.DeadLetterNotifications {
				o.Items = append(o.Items, fsm.DeadLetterNotification{Task: t, Kind: kind})
			}
		}
		b.draft.Do(&o)
	}
	if n := b.fx.NotificationsDropped; n > 0 {
		s.cfg.Totals.NotificationsDropped.Add(uint64(n)) //nolint:gosec // a count
		s.cfg.Logger.Warn("too many notices wait to be told: the oldest are given up", "given_up", n)
	}
	if b.fx.Notifications > 0 && !b.noticed {
		b.noticed = true
		b.then(func(_ uint64, err error) {
			if err == nil {
				s.cfg.NotificationsCommitted()
			}
		})
	}
}

// noticedJobs are the jobs of which somebody has yet to be told.
func (s *Sequencer) noticedJobs() map[fsm.JobID]bool {
	jobs := make(map[fsm.JobID]bool)
	for _, n := range s.view.Notifications(0) {
		jobs[n.Task.Job] = true
	}
	return jobs
}
