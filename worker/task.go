package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Handler executes one attempt of a task. What it returns is the attempt's
// result, at most 4 KiB. It must return soon after ctx is done; context.Cause
// then says why. It may be called from several goroutines at a time.
type Handler func(ctx context.Context, t *Task) (result []byte, err error)

// Task is one attempt of a task, as a handler sees it. It is valid until the
// handler returns; its fields must not be modified. Tests of handlers may make
// one themselves: its methods then do what they can without a worker.
type Task struct {
	Job          uint64   // number of the job
	JobName      string   // name of the job
	ID           string   // id of the task in its job
	Index        uint32   // index of the task in its job, from 0
	Attempt      uint32   // from 1; grows with each assignment, never reused
	Failures     uint32   // earlier attempts that failed
	FencingToken uint64   // grows with each attempt of this task: let storage refuse lower ones
	Worker       string   // name of this worker
	Payload      []byte   // as submitted; nil if there is none
	Inputs       []string // paths of the input files
	// Output is the path to write the output to: a file beside its final place,
	// into which it is moved when the handler has returned without an error.
	// Empty if the task declares none.
	Output   string
	Deadline time.Time // when the attempt's time-out ends it
	// JobOutcome is what the ordinary tasks made of the job, for a clean-up task:
	// completed, failed or cancelled. Empty for an ordinary task.
	JobOutcome string
	// ArrayIndex is the index of the item that is executed, in a task of an array;
	// else nil.
	ArrayIndex *uint32
	// Item is that item as JSON; nil in an array of a range, where the index is all
	// there is.
	Item []byte

	chunked bool // the attempt executes several items
	attempt *attempt
	worker  *Worker
}

// Progress reports how far the attempt is, frac from 0 to 1, with a short text
// (at most 256 bytes are kept). It also restarts the task's heartbeat time-out.
// It is cheap: reports are gathered and only the latest is sent. It may be
// called from any goroutine.
func (t *Task) Progress(frac float64, text string) {
	permille := uint32(0)
	if frac > 0 { // NaN is not
		permille = uint32(math.Round(min(frac, 1) * 1000))
	}
	if t.worker == nil {
		return
	}
	t.worker.attempts.progress(t.attempt, permille, clip(text, 256))
}

// ExecutionID names this attempt: JOB-TASK-ATTEMPT in numbers, such as 42-3-2.
func (t *Task) ExecutionID() string {
	return executionID(t.Job, t.Index, t.Attempt)
}

// IdempotencyKey is the same for every attempt of the task, and different from
// that of any other task of any cluster.
func (t *Task) IdempotencyKey() string {
	cluster := ""
	if t.worker != nil {
		cluster = t.worker.fence.clusterID()
	}
	key := fmt.Sprintf("%s-%d-%d", cluster, t.Job, t.Index)
	if t.chunked && t.ArrayIndex != nil {
		key = fmt.Sprintf("%s-%d", key, *t.ArrayIndex) // each item is a work of its own
	}
	return key
}

// CheckpointDir makes and returns a folder of the task that outlives its
// attempts. When an attempt ends without success, what is in the folder is saved
// for the next one, on whatever worker that is, unless the handler has called
// SaveCheckpoint. It is removed when the task has completed here.
func (t *Task) CheckpointDir() (string, error) {
	if t.worker == nil {
		return "", errors.New("only a task of a worker has a checkpoint folder")
	}
	dir := t.worker.dirs.checkpoint(t.worker.fence.clusterID(), t.attempt.ref)
	if err := t.worker.dirs.make(dir); err != nil {
		return "", err
	}
	t.attempt.checkpointer.CompareAndSwap(nil, t.worker.newCheckpointer(t.attempt, dir))
	return dir, nil
}

// clip cuts text to at most limit bytes of valid UTF-8; protobuf refuses other
// strings, and with them the whole message.
func clip(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit]
		for i := 1; i <= min(3, len(text)); i++ { // a rune cut in two goes whole
			if c := text[len(text)-i]; c >= 0xC0 {
				text = text[:len(text)-i]
				break
			} else if c < 0x80 {
				break
			}
		}
	}
	valid := strings.ToValidUTF8(text, "?")
	return valid
}
