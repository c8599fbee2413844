package sequencer

import (
	"context"
	"time"

	"github.com/dtask/dtask/fsm"
)

// SubmitMany stores jobs that were checked before, independently of each
// other, and returns an outcome for each. Jobs that fit share an entry. A large
// job takes several entries and exists from the last one on. Errors:
// *RejectedError with KeyConflict, or with NeedNotFound if a job that it needs
// left the state after the check; *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) SubmitMany(ctx context.Context, subs []Submission) []SubmitOutcome {
	items, jobs := make([]item, len(subs)), make([]submission, len(subs))
	answers := make(chan submitAnswer, len(subs)) // one for each: the caller may have left
	for i := range subs {
		u := &jobs[i]
		u.Submission, u.uploads, u.seal, u.first = subs[i], &s.uploads, sealJob, [1]submitter{{answers, i}}
		u.submitters = u.first[:]
		items[i] = u
	}
	taken, err := s.inbox.putAll(classSubmit, items)
	results := make([]SubmitOutcome, len(subs))
	for i := range results[taken:] {
		results[taken+i].Err = err
	}
	for range taken {
		select {
		case a := <-answers:
			results[a.job] = a.SubmitOutcome
		case <-ctx.Done():
			for i := range results {
				if results[i] == (SubmitOutcome{}) { // without an answer
					results[i].Err = context.Cause(ctx)
				}
			}
			return results
		}
	}
	return results
}

// submitter waits for the outcome of one of the jobs that it submitted
// together.
type submitter struct {
	answers chan<- submitAnswer // has capacity for it
	job     int
}

type submitAnswer struct {
	job int
	SubmitOutcome
}

// uploads are the submissions that take more than one entry.
type uploads struct {
	cfg       *Config
	retention *retention
	byKey     map[string]*submission
	started   uint64 // tasks of the runs of schedules that are not in retention.tasks yet
	queues    *queues
}

// maxStartedTasks closes an entry for runs of schedules: the operation that starts a run is
// short, however many tasks it has.
const maxStartedTasks = 1 << 16

// submission is a job that is being stored.
type submission struct {
	Submission
	uploads    *uploads
	id         fsm.JobID // 0 = not in the log
	next       int       // first chunk that is not in an entry
	submitters []submitter
	seal       func(b *batch, u *submission) fsm.Reason // makes the complete job what it is for
	refusal    func() error                             // why it can't be sealed now; nil: nothing prevents it
	first      [1]submitter                             // memory of submitters: there is mostly one
}

func (u *submission) answer(r SubmitResult, err error) {
	for _, w := range u.submitters {
		w.answers <- submitAnswer{w.job, SubmitOutcome{r, err}}
	}
	u.submitters = nil
}

func (u *submission) refuse(err error) { u.answer(SubmitResult{}, err) }

func (u *submission) run(b *batch) bool {
	if u.id == 0 && !u.begin(b) {
		return true
	}
	for ; u.next < len(u.Chunks); u.next++ {
		if b.full() {
			return u.suspend()
		}
		if r := b.entry.Do(&fsm.AddChunk{Job: u.id, Chunk: u.Chunks[u.next]}); r != fsm.Accepted {
			return u.drop(b, r)
		}
	}
	if b.full() {
		return u.suspend()
	}
	if u.refusal != nil {
		if err := u.refusal(); err != nil {
			u.remove(b)
			u.refuse(err)
			return true
		}
	}
	if r := u.seal(b, u); r != fsm.Accepted {
		return u.drop(b, r)
	}
	delete(u.uploads.byKey, u.Key)
	b.then(func(index uint64, err error) { u.answer(SubmitResult{ID: u.id, Index: index}, err) })
	return true
}

// sealJob makes the job exist.
func sealJob(b *batch, u *submission) fsm.Reason {
	r := b.entry.Seal(fsm.SealUpload{Job: u.id, Sum: u.Sum, Digest: u.Digest})
	if r == fsm.Accepted {
		b.cfg.Totals.Submissions.Add(1)
	}
	return r
}

// begin checks the key and begins the job; false means that the submission is
// answered, or has joined another one with the same key.
func (u *submission) begin(b *batch) bool {
	if other, ok := u.uploads.byKey[u.Key]; ok {
		if other.Digest != u.Digest {
			u.reject(b, fsm.KeyConflict)
		} else {
			other.submitters = append(other.submitters, u.submitters...)
		}
		return false
	}
	if id, digest, sealed, known := b.view.Key(u.Key); known && sealed {
		if digest != u.Digest {
			u.reject(b, fsm.KeyConflict)
			return false
		}
		b.then(func(_ uint64, err error) { u.answer(SubmitResult{ID: id, Existed: true}, err) })
		return false
	}
	if err := u.uploads.check(b.view, u.Total); err != nil {
		u.refuse(err)
		return false
	}
	if u.Queue != "" && b.view.Level() < fsm.OpLevel(&fsm.SetQueue{}) {
		u.reject(b, fsm.AboveLevel) // the builds of the cluster do not know queues
		return false
	}
	if err := u.uploads.queues.admit(b, u.Queue); err != nil {
		u.refuse(err)
		return false
	}
	id := b.view.NextJob()
	r := b.entry.Do(&fsm.BeginUpload{
		ID: id, Key: u.Key, KeyExpires: b.keyExpires(u.Generated), Header: u.Header, Total: u.Total,
	})
	if r != fsm.Accepted {
		u.reject(b, r)
		return false
	}
	u.id = id
	return true
}

// check returns why a new job is refused now, or nil.
func (x *uploads) check(v *fsm.State, tasks uint32) error {
	if err := x.cfg.CheckSubmit(); err != nil {
		return err
	}
	if x.retention.tasks+x.started+uint64(tasks) > x.cfg.MaxTasks || v.Keys() >= x.cfg.MaxKeys {
		return &BusyError{What: "too many jobs in memory", Limit: LimitMemory, RetryAfter: time.Second}
	}
	return nil
}

// start counts the tasks of a run that has started.
func (x *uploads) start(tasks uint32) { x.started += uint64(tasks) }

// full reports whether the entry takes no more runs of schedules.
func (x *uploads) full() bool { return x.started >= maxStartedTasks }

// suspend leaves the rest to the next entry. Submissions with the same key join
// it meanwhile.
func (u *submission) suspend() (done bool) {
	u.uploads.byKey[u.Key] = u
	return false
}

// reject answers after the commit of the batch.
func (u *submission) reject(b *batch, r fsm.Reason) {
	b.then(func(_ uint64, err error) {
		if err == nil {
			err = &RejectedError{Reason: r}
		}
		u.answer(SubmitResult{}, err)
	})
}

// drop removes a job whose upload started and was then rejected.
func (u *submission) drop(b *batch, r fsm.Reason) (done bool) {
	u.remove(b)
	u.reject(b, r)
	return true
}

func (u *submission) remove(b *batch) {
	b.entry.Do(&fsm.DropUpload{Job: u.id})
	delete(u.uploads.byKey, u.Key)
}
