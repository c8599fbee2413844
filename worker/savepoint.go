package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

var (
	// errNoTask is returned by SaveCheckpoint for a context that is of no
	// handler of a worker.
	errNoTask = errors.New("this context is not of a task that a worker executes")
	// errReplaced is returned for a checkpoint in whose place a newer one was put
	// before it was saved.
	errReplaced = errors.New("a newer checkpoint took its place")
	// errAttemptEnded is returned for a checkpoint of an attempt that has ended.
	errAttemptEnded = errors.New("the attempt has ended")
)

// taskKey finds the task in a handler's context.
type taskKey struct{}

func taskOf(ctx context.Context) *Task {
	t, _ := ctx.Value(taskKey{}).(*Task)
	return t
}

// SaveCheckpoint saves how far a task has come: at most 64 KiB that the task's
// next attempt, also on another worker, gets from LastCheckpoint. ctx is that of
// the handler, or made from it. It returns once that is committed by a majority
// of the coordinators; after an error it may be saved all the same. It may be
// called from any goroutine; calls wait for each other.
func SaveCheckpoint(ctx context.Context, data []byte) error {
	t := taskOf(ctx)
	if t == nil {
		return errNoTask
	}
	if len(data) > maxCheckpoint {
		return fmt.Errorf("a checkpoint has at most %d bytes, not %d: write larger ones to the folder of CheckpointDir", maxCheckpoint, len(data))
	}
	a, l := t.attempt, t.worker.attempts
	turn := l.turnToSave(a)
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	a.savedData.Store(true)
	done := l.save(a, &dtaskv1.Checkpoint{
		Format: dataFormat, Number: l.nextCheckpoint(a), Data: slices.Clone(data), Size: int64(len(data)),
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// LastCheckpoint gives what the last SaveCheckpoint of a task saved, in this
// attempt or an earlier one; nil if there is nothing, or if ctx is of no handler
// of a worker. It is the caller's own copy.
func LastCheckpoint(ctx context.Context) []byte {
	t := taskOf(ctx)
	if t == nil {
		return nil
	}
	l := t.worker.attempts
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(t.attempt.lastData)
}

// Progress is Task.Progress for whoever has the handler's context only.
func Progress(ctx context.Context, frac float64, text string) {
	if t := taskOf(ctx); t != nil {
		t.Progress(frac, text)
	}
}

// pendingCheckpoint is one that is not answered.
type pendingCheckpoint struct {
	a    *attempt
	m    *dtaskv1.Checkpoint
	sent bool       // in this session
	done chan error // size 1: nobody may wait
}

// turnToSave holds a token while a handler's SaveCheckpoint runs. It is made
// when it is first needed: most attempts never do.
func (t *attemptTable) turnToSave(a *attempt) chan struct{} {
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

// save puts a checkpoint on its way, in place of one of the same attempt that is
// not answered. The answer comes once.
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

// takeCheckpointsLocked adds those that are to be sent, and reports whether all
// are. Outcomes wait for them: an attempt that has ended can save nothing more.
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

// checkpointAnswered tells who waits, and gives the attempt if its checkpoint is
// saved.
func (t *attemptTable) checkpointAnswered(answer *dtaskv1.CheckpointResult) (saved *attempt) {
	r := refOf(answer.GetAttempt())
	t.mu.Lock()
	defer t.mu.Unlock()
	t.checkpoints = slices.DeleteFunc(t.checkpoints, func(p *pendingCheckpoint) bool {
		if p.a.ref != r || p.m.GetNumber() != answer.GetNumber() {
			return false
		}
		if answer.GetError() != "" {
			p.done <- errors.New(answer.GetError())
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

// remark shows a text as the progress of an attempt, until it reports its own.
func (t *attemptTable) remark(a *attempt, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.phase != phaseRunning {
		return
	}
	a.progressText = clip(text, 256)
	t.noteProgressLocked(a)
}
