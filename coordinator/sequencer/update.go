package sequencer

import (
	"context"
	"time"

	"github.com/dtask/dtask/fsm"
)

// Change is an update of what has not started.
type Change struct {
	fsm.Update           // its NotBeforeMS and KeyExpires are not used
	Generated  bool      // the key was made by a program
	NotBefore  time.Time // with SetNotBefore and without Delay; zero = at once
	Delay      time.Duration
}

// Changed is the answer to a change.
type ChangeResult struct {
	Version uint32 // of the job, as this change made it
	Existed bool   // the key was known, with the same change
}

// Update changes what has not started, all of it or nothing. Errors:
// *RejectedError with NoSuchJob, NoSuchTask, KeyConflict, AlreadyEnded,
// VersionDiffers, WrongState or TooMany, *BusyError, ErrTermEnded,
// ErrOutcomeUnknown.
func (s *Sequencer) Update(ctx context.Context, c Change) (ChangeResult, error) {
	q := &change{Change: c, answer: make(chan changeResult, 1)}
	if err := s.inbox.put(classCancel, q); err != nil {
		return ChangeResult{}, err
	}
	select {
	case r := <-q.answer:
		return r.changed, r.err
	case <-ctx.Done():
		return ChangeResult{}, cause(ctx)
	}
}

type change struct {
	Change
	answer chan changeResult // size 1: the asker may have gone
}

type changeResult struct {
	changed ChangeResult
	err     error
}

func (q *change) refuse(err error) { q.answer <- changeResult{err: err} }

// reply answers once everything before is committed.
func (q *change) reply(b *batch, r changeResult) {
	b.then(func(_ uint64, err error) {
		if err != nil {
			r = changeResult{err: err}
		}
		q.answer <- r
	})
}

func (q *change) run(s *Sequencer, b *batch) bool {
	if _, digest, _, known := s.view.Key(q.Key); known {
		id, version, _, ofUpdate := s.view.UpdateKey(q.Key)
		if !ofUpdate || id != q.Job || digest != q.Digest {
			q.reply(b, changeResult{err: &RejectedError{Reason: fsm.KeyConflict}})
		} else {
			q.reply(b, changeResult{changed: ChangeResult{Version: version, Existed: true}})
		}
		return true
	}
	if s.view.Keys() >= s.cfg.MaxKeys {
		q.refuse(&BusyError{What: "the memory for idempotency keys is used up", Limit: LimitMemory, RetryAfter: time.Second})
		return true
	}
	op := q.Update
	op.KeyExpires = b.draft.NowMS() + keepFor(q.Generated).Milliseconds()
	op.NotBeforeMS = 0
	switch {
	case q.Delay > 0:
		op.NotBeforeMS = b.draft.NowMS() + q.Delay.Milliseconds()
	case !q.NotBefore.IsZero():
		op.NotBeforeMS = max(q.NotBefore.UnixMilli(), 0)
	}
	s.absorb(b) // what became ready has its place in the order, so that it can be given another
	if r := b.draft.Do(&op); r != fsm.Accepted {
		q.reply(b, changeResult{err: &RejectedError{Reason: r}})
		return true
	}
	s.absorb(b)
	job, _ := s.view.Job(q.Job)
	q.reply(b, changeResult{changed: ChangeResult{Version: job.Version}})
	return true
}

// keepFor is how long a key is remembered.
func keepFor(generated bool) time.Duration {
	if generated {
		return keepGeneratedKey
	}
	return keepUsersKey
}
