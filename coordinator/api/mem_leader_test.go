package api

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// memLeader is a leader without a log: it applies operations directly to the machine.
type memLeader struct {
	Leader // nil; methods that no test calls are not implemented

	mu           sync.Mutex
	machine      *fsm.Machine
	also         *fsm.Machine // applies the same; may be nil
	nowMS        int64
	last         sequencer.Submission
	submits      int
	requests     int    // calls of Propose
	fail         error  // of the next calls
	hang         bool   // SubmitMany waits for its context
	before       func() // is called by SubmitMany; may be nil
	clockInDoubt bool
	waiting      int // jobs that SubmitMany was called with
	observed     map[fsm.JobID]map[uint32]sequencer.Observation
	explain      func(*sequencer.Explanation) // may be nil
	limitLoads   []sequencer.LimitLoad        // in place of those of LimitLoads
	statuses     map[fsm.WorkerID]sequencer.WorkerStatus
}

// do applies one entry.
func (l *memLeader) do(f func(d *fsm.EntryBuilder) fsm.Reason) fsm.Reason {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.apply(f)
}

func (l *memLeader) apply(f func(d *fsm.EntryBuilder) fsm.Reason) fsm.Reason {
	fork, index := l.machine.Fork()
	l.nowMS += 10
	d := fsm.NewEntryBuilder(fork, l.nowMS, &fsm.Effects{})
	reason := f(d)
	if entry, _, ok := d.Finish(); ok {
		l.machine.Apply(index+1, fsm.Encode(nil, entry))
		if l.also != nil {
			l.also.Apply(index+1, fsm.Encode(nil, entry))
		}
	}
	return reason
}

func (l *memLeader) op(t *testing.T, ops ...fsm.Op) {
	t.Helper()
	for _, op := range ops {
		if r := l.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Do(op) }); r != fsm.Accepted {
			t.Fatalf("%T was rejected: %v", op, r)
		}
	}
}

func (l *memLeader) store(s sequencer.Submission) (sequencer.SubmitResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.submits++
	l.last = s
	if l.fail != nil {
		return sequencer.SubmitResult{}, l.fail
	}
	fork, _ := l.machine.Fork()
	if id, digest, sealed, known := fork.Key(s.Key); known && sealed {
		if digest != s.Digest {
			return sequencer.SubmitResult{}, &sequencer.RejectedError{Reason: fsm.KeyConflict}
		}
		return sequencer.SubmitResult{ID: id, Existed: true}, nil
	}
	id := fork.NextJob()
	reason := l.apply(func(d *fsm.EntryBuilder) fsm.Reason {
		if r := d.Do(&fsm.BeginUpload{ID: id, Key: s.Key, KeyExpires: 1, Header: s.Header, Total: s.Total}); r != fsm.Accepted {
			return r
		}
		for _, c := range s.Chunks {
			if r := d.Do(&fsm.AddChunk{Job: id, Chunk: c}); r != fsm.Accepted {
				return r
			}
		}
		return d.Seal(fsm.SealUpload{Job: id, Sum: s.Sum, Digest: s.Digest})
	})
	if reason != fsm.Accepted {
		return sequencer.SubmitResult{}, &sequencer.RejectedError{Reason: reason}
	}
	return sequencer.SubmitResult{ID: id, Index: l.machine.Index()}, nil
}

func (l *memLeader) SubmitMany(ctx context.Context, list []sequencer.Submission) []sequencer.SubmitOutcome {
	stored := make([]sequencer.SubmitOutcome, 0, len(list))
	l.mu.Lock()
	hang := l.hang
	l.waiting += len(list)
	l.mu.Unlock()
	if hang {
		<-ctx.Done()
		for range list {
			stored = append(stored, sequencer.SubmitOutcome{Err: context.Cause(ctx)})
		}
		return stored
	}
	if l.before != nil {
		l.before()
	}
	for _, s := range list {
		r, err := l.store(s)
		stored = append(stored, sequencer.SubmitOutcome{SubmitResult: r, Err: err})
	}
	return stored
}

func (l *memLeader) CancelJob(_ context.Context, id fsm.JobID, reason string) (bool, error) {
	return l.cancel(&fsm.CancelJob{Job: id, Reason: reason}, func(s *fsm.State) bool {
		job, _ := s.Job(id)
		return job.State == fsm.JobCancelled || job.CleaningUp() && job.Outcome == fsm.JobCancelled
	})
}

func (l *memLeader) CancelJobNow(_ context.Context, id fsm.JobID, reason string) (bool, error) {
	return l.cancel(&fsm.CancelJob{Job: id, Reason: reason, IncludeCleanup: true}, func(s *fsm.State) bool {
		job, _ := s.Job(id)
		return job.State == fsm.JobCancelled
	})
}

func (l *memLeader) CancelArray(_ context.Context, ref fsm.TaskRef, reason string) (bool, error) {
	return l.cancel(&fsm.CancelTask{Task: ref, Reason: reason, WholeArray: true}, func(s *fsm.State) bool {
		t, _ := s.Task(ref)
		return t.State == fsm.Cancelled
	})
}

func (l *memLeader) CancelTask(_ context.Context, ref fsm.TaskRef, reason string) (bool, error) {
	return l.cancel(&fsm.CancelTask{Task: ref, Reason: reason}, func(s *fsm.State) bool {
		task, _ := s.Task(ref)
		return task.State == fsm.Cancelled
	})
}

func (l *memLeader) cancel(op fsm.Op, was func(*fsm.State) bool) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return false, l.fail
	}
	fork, _ := l.machine.Fork()
	already := was(fork)
	if r := l.apply(func(d *fsm.EntryBuilder) fsm.Reason { return d.Do(op) }); r != fsm.Accepted && !already {
		return false, &sequencer.RejectedError{Reason: r}
	}
	return already, nil
}

func (l *memLeader) Update(ctx context.Context, c sequencer.Change) (sequencer.ChangeResult, error) {
	if c.Delay > 0 {
		c.NotBeforeMS = 1_000_000 + c.Delay.Milliseconds()
	} else if !c.NotBefore.IsZero() {
		c.NotBeforeMS = c.NotBefore.UnixMilli()
	}
	return l.change(ctx, c.Job, c.Precondition, &c.Update)
}

func (l *memLeader) Revive(ctx context.Context, op fsm.Revive, _ bool) (sequencer.ChangeResult, error) {
	return l.change(ctx, op.Job, op.Precondition, &op)
}

func (l *memLeader) Purge(ctx context.Context, op fsm.Purge, _ bool) (sequencer.ChangeResult, error) {
	return l.change(ctx, op.Job, op.Precondition, &op)
}

func (l *memLeader) change(ctx context.Context, id fsm.JobID, p fsm.Precondition, op fsm.Op) (sequencer.ChangeResult, error) {
	if err := l.propose(ctx, op); err != nil {
		return sequencer.ChangeResult{}, err
	}
	fork, _ := l.machine.Fork()
	job, _ := fork.Job(id)
	made, _ := fork.ChangeOf(p.Key)
	return sequencer.ChangeResult{Version: job.Version, Purged: made.Purged}, nil
}

func (l *memLeader) Drain(ctx context.Context, name string, deadline time.Duration, reason string) error {
	fork, _ := l.machine.Fork()
	if w := fork.WorkerByName(name); w != nil {
		return l.propose(ctx, &fsm.DrainWorker{ID: w.ID, Until: 1_000_000 + deadline.Milliseconds(), Reason: reason})
	}
	return &sequencer.RejectedError{Reason: fsm.WorkerNotFound}
}

func (l *memLeader) Undrain(ctx context.Context, name string) (bool, error) {
	fork, _ := l.machine.Fork()
	switch w := fork.WorkerByName(name); {
	case w == nil:
		return false, &sequencer.RejectedError{Reason: fsm.WorkerNotFound}
	case !w.Drains():
		return true, nil
	default:
		return false, l.propose(ctx, &fsm.UndrainWorker{ID: w.ID})
	}
}

func (l *memLeader) SetBackupSchedule(ctx context.Context, s fsm.BackupSchedule) (fsm.BackupSchedule, error) {
	s.AtMS = 1_000_000
	return s, l.propose(ctx, &fsm.SetBackupSchedule{BackupSchedule: s})
}

func (l *memLeader) DeleteBackupSchedule(ctx context.Context) (bool, error) {
	err := l.propose(ctx, &fsm.DeleteBackupSchedule{})
	if isRejected(err, fsm.AlreadyEnded) {
		return true, nil
	}
	return false, err
}

// propose applies an operation.
func (l *memLeader) propose(_ context.Context, op fsm.Op) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	if l.fail != nil {
		return l.fail
	}
	if r := l.apply(func(d *fsm.EntryBuilder) fsm.Reason { return d.Do(op) }); r != fsm.Accepted {
		return &sequencer.RejectedError{Reason: r}
	}
	return nil
}

func (l *memLeader) Observed(id fsm.JobID) map[uint32]sequencer.Observation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.observed[id]
}

func (l *memLeader) Workers(...fsm.WorkerID) map[fsm.WorkerID]sequencer.WorkerStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.statuses
}

// Explain knows of a task what the state has, and what the test adds.
func (l *memLeader) Explain(_ context.Context, ref fsm.TaskRef) (*sequencer.Explanation, error) {
	l.mu.Lock()
	fail, explain := l.fail, l.explain
	l.mu.Unlock()
	if fail != nil {
		return nil, fail
	}
	fork, _ := l.machine.Fork()
	t, _ := fork.Task(ref)
	e := &sequencer.Explanation{State: t.State, Attempt: t.Attempt}
	if explain != nil {
		explain(e)
	}
	return e, nil
}
