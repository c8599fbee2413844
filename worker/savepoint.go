package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

var (
	// errNoTask is returned by SaveCheckpoint for a context that is not a
	// handler's.
	errNoTask = errors.New("worker: context does not belong to a handler")
	// errReplaced is returned for a checkpoint that was replaced before it was
	// saved.
	errReplaced = errors.New("worker: checkpoint replaced by a newer one")
	// errAttemptEnded is returned for a checkpoint of an attempt that has
	// ended.
	errAttemptEnded = errors.New("worker: attempt ended")
)

// taskKey is the key of the task in a handler's context.
type taskKey struct{}

func taskOf(ctx context.Context) *Task {
	t, _ := ctx.Value(taskKey{}).(*Task)
	return t
}

// SaveCheckpoint saves at most 64 KiB that the task's next attempt, on any
// worker, gets from LastCheckpoint. ctx must be the handler's context or
// derived from it. SaveCheckpoint returns after a majority of the coordinators
// has committed the data; after an error, it may be saved or not. It may be
// called from any goroutine; concurrent calls run one after another.
func SaveCheckpoint(ctx context.Context, data []byte) error {
	t := taskOf(ctx)
	if t == nil {
		return errNoTask
	}
	if len(data) > maxCheckpoint {
		return fmt.Errorf("checkpoint too large: %d bytes exceed %d: write it to the directory of CheckpointDir", len(data), maxCheckpoint)
	}
	a, table := t.attempt, t.worker.attempts
	turn := table.saveTurn(a)
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	a.savedData.Store(true)
	done := table.save(a, &dtaskv1.Checkpoint{
		Format: dataFormat, Number: table.nextCheckpoint(a), Data: slices.Clone(data), Size: int64(len(data)),
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// LastCheckpoint returns a copy of the data of the task's last SaveCheckpoint,
// in this attempt or an earlier one. It returns nil if nothing was saved, or if
// ctx does not belong to a handler.
func LastCheckpoint(ctx context.Context) []byte {
	t := taskOf(ctx)
	if t == nil {
		return nil
	}
	t.worker.attempts.mu.Lock()
	defer t.worker.attempts.mu.Unlock()
	return slices.Clone(t.attempt.lastData)
}

// Progress is Task.Progress for code that has only the handler's context.
func Progress(ctx context.Context, frac float64, text string) {
	if t := taskOf(ctx); t != nil {
		t.Progress(frac, text)
	}
}

// pendingCheckpoint is a checkpoint that is not answered.
type pendingCheckpoint struct {
	a    *attempt
	m    *dtaskv1.Checkpoint
	sent bool       // in this session
	done chan error // size 1: the receiver may be gone
}

// saveTurn returns a channel that holds a token while a handler's
// SaveCheckpoint runs. It is created on first use, because most attempts don't
// need it.
func (t *attemptTable) saveTurn(a *attempt) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.saving == nil {
		a.saving = make(chan struct{}, 1)
	}
	return a.saving
}

// nextCheckpoint numbers the checkpoints of an attempt.
func (t *attemptTable) nextCheckpoint(a *attempt) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.saves++
	return a.saves
}

// save queues a checkpoint, in place of any unanswered one of the same attempt.
// The returned channel receives one result.
func (t *attemptTable) save(a *attempt, m *dtaskv1.Checkpoint) <-chan error {
	p := &pendingCheckpoint{a: a, m: m, done: make(chan error, 1)}
	m.Attempt = a.message()
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.phase == phaseEnded {
		p.done <- errAttemptEnded
		return p.done
	}
	t.dropCheckpointLocked(a.ref, errReplaced)
	t.checkpoints = append(t.checkpoints, p)
	signal(t.wake)
	return p.done
}

func (t *attemptTable) dropCheckpointLocked(r ref, why error) {
	t.checkpoints = slices.DeleteFunc(t.checkpoints, func(p *pendingCheckpoint) bool {
		if p.a.ref != r {
			return false
		}
		p.done <- why
		return true
	})
}

// takeCheckpointsLocked adds unsent checkpoints to the reports, and reports
// whether all of them fit. Outcomes wait for them, because an ended attempt can
// save nothing more.
func (t *attemptTable) takeCheckpointsLocked(r *dtaskv1.Reports) (all bool) {
	size := 0
	for _, p := range t.checkpoints {
		switch {
		case p.sent:
		case size >= maxReportBytes:
			signal(t.wake)
			return false
		default:
			p.sent = true
			size += 200 + len(p.m.GetData())
			r.Checkpoints = append(r.Checkpoints, p.m)
		}
	}
	return true
}

// checkpointAnswered passes a result on to the waiting caller. It returns the
// attempt if its checkpoint was saved.
func (t *attemptTable) checkpointAnswered(result *dtaskv1.CheckpointResult) (saved *attempt) {
	r := refOf(result.GetAttempt())
	t.mu.Lock()
	defer t.mu.Unlock()
	t.checkpoints = slices.DeleteFunc(t.checkpoints, func(p *pendingCheckpoint) bool {
		if p.a.ref != r || p.m.GetNumber() != result.GetNumber() {
			return false
		}
		if result.GetError() != "" {
			p.done <- errors.New(result.GetError())
			return true
		}
		if p.m.GetFormat() == dataFormat {
			p.a.lastData = p.m.GetData()
		}
		saved = p.a
		p.done <- nil
		return true
	})
	return saved
}

// noteText sets the progress text of an attempt, until the attempt reports its
// own.
func (t *attemptTable) noteText(a *attempt, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.phase != phaseRunning {
		return
	}
	a.progressText = clip(text, 256)
	t.noteProgressLocked(a)
}
