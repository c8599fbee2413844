package sequencer

import (
	"context"
	"time"

	"github.com/dtask/dtask/fsm"
)

// SetQueue sets a queue or replaces its settings, and returns it as it is then. It keeps its
// pause. version is the one that it must have; 0 = any, or none. A repeated request changes
// nothing. Errors: *RejectedError as for fsm.SetQueue, *BusyError, ErrTermEnded,
// ErrOutcomeUnknown.
func (s *Sequencer) SetQueue(ctx context.Context, name string, to fsm.QueueSettings, version uint32, by string) (*fsm.Queue, error) {
	return do(ctx, s.inbox, classCancel, func(b *batch) (*fsm.Queue, error) {
		op := &fsm.SetQueue{Name: name, QueueSettings: to, By: by, IfVersion: version, AtMS: b.entry.NowMS()}
		if old := b.view.Queue(name); old != nil {
			op.Pause = old.Pause
		}
		return s.proposeQueue(b, name, op)
	})
}

// PauseQueue lets nothing of a queue start. One that is paused stays as it is, and already is
// true. Errors: *RejectedError with QueueNotFound, *BusyError, ErrTermEnded,
// ErrOutcomeUnknown.
func (s *Sequencer) PauseQueue(ctx context.Context, name, reason, by string) (q *fsm.Queue, already bool, err error) {
	return s.setPause(ctx, name, by, func(b *batch) fsm.QueuePause {
		return fsm.QueuePause{AtMS: b.entry.NowMS(), Reason: reason, By: by}
	})
}

// ResumeQueue lets the tasks of a paused queue start again. One that is not paused stays as
// it is, and already is true. Errors as for PauseQueue.
func (s *Sequencer) ResumeQueue(ctx context.Context, name, by string) (q *fsm.Queue, already bool, err error) {
	return s.setPause(ctx, name, by, func(*batch) fsm.QueuePause { return fsm.QueuePause{} })
}

// queueChange is what a change has made of a queue; already means that nothing was to change.
type queueChange struct {
	queue   *fsm.Queue
	already bool
}

// setPause pauses a queue or resumes it, unless it is paused, or not, already.
func (s *Sequencer) setPause(ctx context.Context, name, by string, pause func(b *batch) fsm.QueuePause) (*fsm.Queue, bool, error) {
	c, err := do(ctx, s.inbox, classCancel, func(b *batch) (queueChange, error) {
		to, now := pause(b), b.view.Queue(name)
		if now == nil && name == fsm.DefaultQueue { // it need not have been set
			now = &fsm.Queue{Name: name, QueueSettings: fsm.QueueSettings{Weight: 1}}
		}
		if now == nil {
			return queueChange{}, &RejectedError{Reason: fsm.QueueNotFound}
		}
		if now.IsPaused() == (to.AtMS != 0) {
			return queueChange{now, true}, nil
		}
		q, err := s.proposeQueue(b, name, &fsm.SetQueue{Name: name, QueueSettings: now.QueueSettings, Pause: to, By: by, AtMS: b.entry.NowMS()})
		return queueChange{queue: q}, err
	})
	return c.queue, c.already, err
}

// DeleteQueue removes a queue; the default one returns to its initial settings. version is
// the one that it must have; 0 = any. Errors: *RejectedError with QueueNotFound,
// VersionMismatch, or WrongState while jobs name it; *BusyError, ErrTermEnded,
// ErrOutcomeUnknown.
func (s *Sequencer) DeleteQueue(ctx context.Context, name string, version uint32) error {
	_, err := do(ctx, s.inbox, classCancel, func(b *batch) (*fsm.Queue, error) {
		if name == fsm.DefaultQueue && b.view.Queue(name) == nil { // it has them
			if version != 0 {
				return nil, &RejectedError{Reason: fsm.VersionMismatch}
			}
			return nil, nil //nolint:nilnil // nothing is set, as after a deletion
		}
		return s.proposeQueue(b, name, &fsm.DeleteQueue{Name: name, IfVersion: version})
	})
	return err
}

// proposeQueue proposes a change of a queue, and returns the queue as it is then; nil if it is
// not set.
func (s *Sequencer) proposeQueue(b *batch, name string, op fsm.Op) (*fsm.Queue, error) {
	s.absorb(b) // tasks that became ready must be queued before they can be reordered
	if r := b.entry.Do(op); r != fsm.Accepted {
		return nil, &RejectedError{Reason: r}
	}
	s.queues.changed(b, name)
	return b.view.Queue(name), nil
}

// MoveJob moves a job to another queue. Errors: *RejectedError with JobNotFound,
// QueueNotFound, KeyConflict, AlreadyEnded or VersionMismatch, *BusyError, ErrTermEnded,
// ErrOutcomeUnknown.
func (s *Sequencer) MoveJob(ctx context.Context, op fsm.MoveJob, generated bool) (ChangeResult, error) {
	return s.change(ctx, op.Job, &op.Precondition, generated, func(b *batch) fsm.Reason {
		s.absorb(b) // as in Update
		r := b.entry.Do(&op)
		s.absorb(b)
		return r
	})
}

// QueueLoad is what is ready and runs of a queue.
type QueueLoad struct {
	Waiting, Running int
	Oldest           time.Duration // how long its oldest sampled task has been ready; 0 = none
	P50, P99         time.Duration // of the waits of the last tasks that were assigned; 0 = none
	Waits            int           // as many
}

// QueueLoads returns the load of each queue that is set or has tasks, by name, as the leader
// counts it. Errors: *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) QueueLoads(ctx context.Context) (map[string]QueueLoad, error) {
	return do(ctx, s.inbox, classWorker, func(b *batch) (map[string]QueueLoad, error) {
		return s.dispatch.loads(b), nil
	})
}

// loads returns the load of each queue by name.
func (d *dispatcher) loads(b *batch) map[string]QueueLoad {
	loads := make(map[string]QueueLoad)
	for name, l := range d.sched.Loads() {
		if name == "" {
			name = fsm.DefaultQueue
		}
		loads[name] = QueueLoad{Waiting: l.Waiting, Running: l.Running}
	}
	for name, x := range d.queueWaits.byQueue {
		l := loads[name]
		l.P50, l.P99 = x.quantiles()
		l.Waits = x.n
		loads[name] = l
	}
	for name, since := range d.waits.oldestOf(b.view) {
		l := loads[name]
		l.Oldest = b.now.Sub(since)
		loads[name] = l
	}
	return loads
}
