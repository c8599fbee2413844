package sequencer

import (
	"context"
	"time"

	"github.com/dtask/dtask/fsm"
)

// NewSchedule is a schedule to set.
type NewSchedule struct {
	Submission             // the job that it starts; its key must be a new one
	Namespace, Name string // of the job
	fsm.Recurrence         // Ordered is computed
	fsm.ScheduleRules
	Owner     fsm.IdentityID // 0 = none
	By        string         // name of the one that asks for it
	IfVersion uint32         // 0 = any, or none
}

// SetSchedule sets a schedule, and returns it as it is then. A repeated request changes
// nothing. Errors: *RejectedError as for fsm.SetSchedule, *BusyError, ErrTermEnded,
// ErrOutcomeUnknown; that of Calendar for an invalid recurrence, of which nothing was
// proposed.
func (s *Sequencer) SetSchedule(ctx context.Context, n NewSchedule) (*fsm.Schedule, error) {
	c, err := calendarIn(s.schedules.cfg.Zone, n.Name, &n.Recurrence)
	if err != nil {
		return nil, err
	}
	n.Ordered = c.InOrder()
	if err := s.schedules.clockRefusal(); err != nil {
		return nil, err
	}
	var set *fsm.Schedule // written before the answer
	answers := make(chan submitAnswer, 1)
	u := &submission{Submission: n.Submission, uploads: &s.uploads, first: [1]submitter{{answers, 0}}}
	u.submitters = u.first[:]
	u.refusal = s.schedules.clockRefusal // again: the doubt may begin while the call waits
	u.seal = func(b *batch, u *submission) fsm.Reason {
		r := b.entry.Do(&fsm.SetSchedule{
			Upload: u.id, Sum: u.Sum, Digest: u.Digest, Recurrence: n.Recurrence, ScheduleRules: n.ScheduleRules,
			Owner: n.Owner, By: n.By, IfVersion: n.IfVersion, AtMS: b.entry.NowMS(),
		})
		if r == fsm.Accepted {
			set = b.view.ScheduleByName(n.Namespace, n.Name)
			s.schedules.changed(b, set.ID)
		}
		return r
	}
	if err := s.inbox.put(classSubmit, u); err != nil {
		return nil, err
	}
	select {
	case a := <-answers:
		if a.Err != nil {
			return nil, a.Err
		}
		return set, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ClockAgrees reports whether the wall clock of this leader is believed to be right; no
// schedule fires otherwise. It is safe for concurrent use.
func (s *Sequencer) ClockAgrees() bool { return s.schedules.cfg.ClockAgrees() }

// clockRefusal refuses requests that depend on the time while the clock is in doubt.
func (t *schedules) clockRefusal() error {
	if t.cfg.ClockAgrees() {
		return nil
	}
	return &BusyError{What: "the wall clock of the leader is not confirmed by a majority", RetryAfter: time.Second}
}

// PauseSchedule keeps a schedule from firing. One that is paused stays as it is. Errors:
// *RejectedError with ScheduleNotFound, *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) PauseSchedule(ctx context.Context, id fsm.ScheduleID, reason, by string) (*fsm.Schedule, error) {
	return s.changeSchedule(ctx, id, func(b *batch) (fsm.Op, error) {
		return &fsm.PauseSchedule{ID: id, Reason: reason, By: by, AtMS: b.entry.NowMS()}, nil
	})
}

// ResumeSchedule lets a paused schedule fire again, from the next tick on. Errors as for
// PauseSchedule.
func (s *Sequencer) ResumeSchedule(ctx context.Context, id fsm.ScheduleID) (*fsm.Schedule, error) {
	return s.changeSchedule(ctx, id, func(b *batch) (fsm.Op, error) {
		return &fsm.ResumeSchedule{ID: id, AtMS: b.entry.NowMS()}, s.schedules.clockRefusal()
	})
}

// DeleteSchedule removes a schedule; its jobs continue. version is the one that it must have;
// 0 = any. Errors: as for PauseSchedule, and *RejectedError with VersionMismatch.
func (s *Sequencer) DeleteSchedule(ctx context.Context, id fsm.ScheduleID, version uint32) error {
	_, err := s.changeSchedule(ctx, id, func(*batch) (fsm.Op, error) { return &fsm.DeleteSchedule{ID: id, IfVersion: version}, nil })
	return err
}

// changeSchedule proposes a change of a schedule, and returns it as it is then; nil if it
// is deleted.
func (s *Sequencer) changeSchedule(ctx context.Context, id fsm.ScheduleID, change func(b *batch) (fsm.Op, error)) (*fsm.Schedule, error) {
	return do(ctx, s.inbox, classCancel, func(b *batch) (*fsm.Schedule, error) {
		op, err := change(b)
		if err != nil {
			return nil, err
		}
		if r := b.entry.Do(op); r != fsm.Accepted {
			return nil, &RejectedError{Reason: r}
		}
		s.schedules.changed(b, id)
		return b.view.Schedule(id), nil
	})
}

// ScheduleRun is a run of a schedule to start by hand.
type ScheduleRun struct {
	Schedule   fsm.ScheduleID
	TickMS     int64    // that the run is for; 0 = none
	PreviousMS int64    // the tick before it; 0 = none
	Key        string   // idempotency key, never empty
	Generated  bool     // the key was generated
	Digest     [16]byte // of the request
}

// RunSchedule starts a run by hand, also of a schedule that is paused. A repeated request
// returns the first run. Errors: *RejectedError as for fsm.RunSchedule, *BusyError,
// ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) RunSchedule(ctx context.Context, n ScheduleRun) (SubmitResult, error) {
	return do(ctx, s.inbox, classCancel, func(b *batch) (SubmitResult, error) {
		if id, digest, sealed, known := b.view.Key(n.Key); known {
			if !sealed || digest != n.Digest {
				return SubmitResult{}, &RejectedError{Reason: fsm.KeyConflict}
			}
			return SubmitResult{ID: id, Existed: true}, nil
		}
		tasks := uint32(0)
		if x := b.view.Schedule(n.Schedule); x != nil {
			tasks = x.Total()
			if err := s.uploads.check(b.view, tasks); err != nil {
				return SubmitResult{}, err
			}
		}
		id := b.view.NextJob()
		r := b.entry.Do(&fsm.RunSchedule{
			Schedule: n.Schedule, TickMS: n.TickMS, PreviousMS: n.PreviousMS, Key: n.Key, KeyExpires: b.keyExpires(n.Generated), Digest: n.Digest,
		})
		if r != fsm.Accepted {
			return SubmitResult{}, &RejectedError{Reason: r}
		}
		s.uploads.start(tasks)
		return SubmitResult{ID: id}, nil
	})
}
