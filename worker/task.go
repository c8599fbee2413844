package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// Handler executes one attempt of a task and returns its result, at most 4 KiB.
// It must return soon after ctx is done; context.Cause returns the reason. It
// may be called from several goroutines concurrently.
type Handler func(ctx context.Context, t *Task) (result []byte, err error)

// Task is one attempt of a task. It is valid until the handler returns; its
// fields must not be modified. Tests of handlers may construct one: its methods
// then do what is possible without a worker.
type Task struct {
	Job          uint64   // number of the job
	JobName      string   // name of the job
	ID           string   // id of the task in its job
	Index        uint32   // index of the task in its job, from 0
	Attempt      uint32   // from 1; grows with each assignment, never reused
	Failures     uint32   // earlier attempts that failed
	FencingToken uint64   // grows with each attempt of the task: storage should reject lower ones
	Worker       string   // name of this worker
	Payload      []byte   // as submitted; nil if empty
	Inputs       []string // paths of the input files
	// Output is the path to write the output to: a temporary file that is
	// renamed to the final path after the handler has returned without an
	// error. Empty if the task declares none.
	Output   string
	Deadline time.Time // when the attempt times out
	// JobOutcome is the outcome of the ordinary tasks, for a cleanup task:
	// completed, failed or cancelled. Empty for an ordinary task.
	JobOutcome string
	// ArrayIndex is the index of the current item of an array task; otherwise
	// nil.
	ArrayIndex *uint32
	// Item is that item as JSON; nil if the array is a range, whose items are
	// the indexes.
	Item []byte
	// Resources are what the attempt takes of the worker, in thousandths, by name; of several
	// alternatives, the chosen one. A handler must not change the map.
	Resources map[string]int64
	// GPUs are those that the attempt may use: indexes from 0, or UUIDs. Of a part of a GPU,
	// other attempts use the rest. Nil if the task requests none, or if the worker knows only
	// their number.
	GPUs []string

	chunked bool // the attempt executes several items
	attempt *attempt
	worker  *Worker
}

// Progress reports the progress of the attempt, frac from 0 to 1, with a short
// text (at most 256 bytes are kept). It also restarts the task's heartbeat
// timeout. It is cheap: only the latest report is sent, with the next message.
// It may be called from any goroutine.
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

// ExecutionID identifies this attempt: JOB-TASK-ATTEMPT in numbers, such as
// 42-3-2.
func (t *Task) ExecutionID() string {
	return executionID(t.Job, t.Index, t.Attempt)
}

// IdempotencyKey is the same for all attempts of the task, and different from
// that of any other task of any cluster.
func (t *Task) IdempotencyKey() string {
	cluster := ""
	if t.worker != nil {
		cluster = t.worker.fence.clusterID()
	}
	key := fmt.Sprintf("%s-%d-%d", cluster, t.Job, t.Index)
	if t.chunked && t.ArrayIndex != nil {
		key = fmt.Sprintf("%s-%d", key, *t.ArrayIndex) // each item has effects of its own
	}
	return key
}

// CheckpointDir creates and returns a directory of the task that outlives its
// attempts. If an attempt doesn't succeed, the contents are saved for the next
// attempt on any worker, unless the handler has called SaveCheckpoint. The
// directory is removed after the task has completed here.
func (t *Task) CheckpointDir() (string, error) {
	if t.worker == nil {
		return "", errors.New("worker: task without a worker has no checkpoint directory")
	}
	return t.checkpointDir(t.worker.dirs.make)
}

// checkpointDir is CheckpointDir with a function that makes a directory.
func (t *Task) checkpointDir(create func(path string) error) (string, error) {
	dir := t.worker.dirs.checkpoint(t.worker.fence.clusterID(), t.attempt.ref)
	if err := create(dir); err != nil {
		return "", err
	}
	t.attempt.checkpointer.CompareAndSwap(nil, t.worker.newCheckpointer(t.attempt, dir))
	return dir, nil
}

// clip cuts text to at most limit bytes of valid UTF-8: protobuf rejects a
// whole message because of one invalid string.
func clip(text string, limit int) string {
	if end := limit; len(text) > limit {
		for end > 0 && end > limit-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
	}
	return strings.ToValidUTF8(text, "?")
}
