package sequencer

import (
	"context"
	"time"

	"github.com/dtask/dtask/fsm"
)

// How long idempotency keys are remembered.
const (
	keepGeneratedKey = 10 * time.Minute
	keepUsersKey     = 24 * time.Hour
)

// Submit stores a job. It has been checked; a large one takes several entries
// and exists from the last on. Errors: *RejectedError with KeyConflict,
// *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) Submit(ctx context.Context, sub Submission) (SubmitResult, error) {
	r := s.SubmitMany(ctx, []Submission{sub})[0]
	return r.SubmitResult, r.Err
}

// SubmitMany stores jobs, each for itself, and gives an answer for each, with the
// errors of Submit. Those that fit share an entry.
func (s *Sequencer) SubmitMany(ctx context.Context, subs []Submission) []SubmitOutcome {
	items, jobs := make([]item, len(subs)), make([]submission, len(subs))
	answers := make(chan answer, len(subs)) // room for all: the asker may have gone
	for i := range subs {
		u := &jobs[i]
		u.Submission, u.first = subs[i], [1]waiter{{answers, i}}
		u.waiters = u.first[:]
		items[i] = u
	}
	taken, err := s.inbox.putAll(classSubmit, items)
	stored, pending := make([]SubmitOutcome, len(subs)), make([]bool, len(subs))
	for i := range stored {
		pending[i] = i < taken
		if !pending[i] {
			stored[i].Err = err
		}
	}
	for range taken {
		select {
		case a := <-answers:
			stored[a.job], pending[a.job] = a.SubmitOutcome, false
		case <-ctx.Done():
			for i := range stored {
				if pending[i] {
					stored[i].Err = cause(ctx)
				}
			}
			return stored
		}
	}
	return stored
}

// A waiter is told what became of one of the jobs that he submitted.
type waiter struct {
	answers chan<- answer // has room for it
	job     int           // which of his jobs it is
}

// answer is what became of a job, to one who waits for several.
type answer struct {
	job int
	SubmitOutcome
}

// submission is a job on its way into the log.
type submission struct {
	Submission
	id      fsm.JobID // 0 = not begun
	next    int       // first chunk that is not in an entry
	waiters []waiter
	first   [1]waiter // memory of waiters: there is mostly one
}

func (u *submission) answer(r SubmitResult, err error) {
	for _, w := range u.waiters {
		w.answers <- answer{w.job, SubmitOutcome{r, err}}
	}
	u.waiters = nil
}

func (u *submission) refuse(err error) { u.answer(SubmitResult{}, err) }

func (u *submission) run(s *Sequencer, b *batch) bool {
	if u.id == 0 && !u.begin(s, b) {
		return true
	}
	for ; u.next < len(u.Chunks); u.next++ {
		if !b.room() {
			return u.goOn(s)
		}
		if r := b.draft.Do(fsm.AddChunk(u.id, u.Chunks[u.next])); r != fsm.Accepted {
			u.giveUp(s, b, r)
			return true
		}
	}
	if !b.room() {
		return u.goOn(s)
	}
	if r := b.draft.Do(&fsm.SealUpload{Job: u.id, Sum: u.Sum, Digest: u.Digest}); r != fsm.Accepted {
		u.giveUp(s, b, r)
		return true
	}
	delete(s.uploads, u.Key)
	s.cfg.Totals.Submissions.Add(1)
	b.then(func(index uint64, err error) {
		u.answer(SubmitResult{ID: u.id, Index: index}, err)
	})
	return true
}

// begin looks the key up and begins the job; false means that the submission
// is answered or has joined another with the same key.
func (u *submission) begin(s *Sequencer, b *batch) bool {
	if other, ok := s.uploads[u.Key]; ok {
		if other.Digest != u.Digest {
			u.reject(b, fsm.KeyConflict)
		} else {
			other.waiters = append(other.waiters, u.waiters...)
		}
		return false
	}
	if id, digest, sealed, known := s.view.Key(u.Key); known && sealed {
		if digest != u.Digest {
			u.reject(b, fsm.KeyConflict)
			return false
		}
		b.then(func(_ uint64, err error) { u.answer(SubmitResult{ID: id, Existed: true}, err) })
		return false
	}
	if err := s.cfg.CheckSubmit(); err != nil {
		u.refuse(err)
		return false
	}
	if s.tasks+uint64(u.Total) > s.cfg.MaxTasks || s.view.Keys() >= s.cfg.MaxKeys {
		u.refuse(&BusyError{What: "the memory for jobs is used up", Limit: LimitMemory, RetryAfter: time.Second})
		return false
	}
	id := s.view.NextJob()
	r := b.draft.Do(&fsm.BeginUpload{
		ID: id, Key: u.Key, KeyExpires: b.draft.NowMS() + keepFor(u.Generated).Milliseconds(), Header: u.Header, Total: u.Total,
	})
	if r != fsm.Accepted {
		u.reject(b, r)
		return false
	}
	u.id = id
	return true
}

// goOn notes that the rest takes another entry: whoever comes with this key meanwhile joins.
func (u *submission) goOn(s *Sequencer) (done bool) {
	s.uploads[u.Key] = u
	return false
}

// reject answers once everything before is committed.
func (u *submission) reject(b *batch, r fsm.Reason) {
	b.then(func(_ uint64, err error) {
		if err == nil {
			err = &RejectedError{Reason: r}
		}
		u.answer(SubmitResult{}, err)
	})
}

// giveUp takes back a job that turned out not to be acceptable.
func (u *submission) giveUp(s *Sequencer, b *batch, r fsm.Reason) {
	b.draft.Do(&fsm.DropUpload{Job: u.id})
	delete(s.uploads, u.Key)
	u.reject(b, r)
}
