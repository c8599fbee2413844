package api

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// Leader is a term of leadership; *sequencer.Sequencer is one. Its errors are
// those of package sequencer. It must be a pointer: terms are told apart by ==.
type Leader interface {
	// Submit returns when the job is stored, or joins an earlier submission
	// with the same key and digest.
	Submit(ctx context.Context, s sequencer.Submission) (sequencer.SubmitResult, error)
	// SubmitMany does so with many jobs, each for itself, and gives an answer for
	// each.
	SubmitMany(ctx context.Context, s []sequencer.Submission) []sequencer.SubmitOutcome
	// CancelJob returns when the ordinary tasks of the job have ended as
	// cancelled, which the job will be once its clean-up tasks have run; already
	// means that they had before.
	CancelJob(ctx context.Context, id fsm.JobID, reason string) (already bool, err error)
	// CancelJobNow returns when all tasks of the job have ended, clean-up tasks
	// too; already means that they had before.
	CancelJobNow(ctx context.Context, id fsm.JobID, reason string) (already bool, err error)
	// CancelTask returns when the task has ended as cancelled; already means
	// that it had before.
	CancelTask(ctx context.Context, t fsm.TaskRef, reason string) (already bool, err error)
	// CancelArray does so for all tasks of an array, of which t is one.
	CancelArray(ctx context.Context, t fsm.TaskRef, reason string) (already bool, err error)
	// Retry returns when the job goes on with those of its tasks that are named,
	// by ascending indexes, or with all that ended without completing if none
	// is. It is a *sequencer.RejectedError with WrongState if one of them cannot
	// go on, or if there is none.
	Retry(ctx context.Context, id fsm.JobID, tasks []uint32) error
	// Update returns when what has not started is changed. It is a
	// *sequencer.RejectedError with WrongState if it has started, with
	// VersionDiffers if the job has another version.
	Update(ctx context.Context, c sequencer.Change) (sequencer.ChangeResult, error)
	// Purge returns when the tasks, named as for Retry, have left the dead
	// letters. It is a *sequencer.RejectedError with WrongState if one of them is
	// not dead, or if there is none.
	Purge(ctx context.Context, id fsm.JobID, tasks []uint32) error
	// Drain returns when nothing new is given to the worker of this name any
	// more; what it runs when deadline has passed is handed back. It is a
	// *sequencer.RejectedError with NoSuchWorker for an unknown name.
	Drain(ctx context.Context, name string, deadline time.Duration, reason string) error
	// Undrain returns when the worker of this name works again; already means
	// that it did not drain. Errors as for Drain.
	Undrain(ctx context.Context, name string) (already bool, err error)
	// Observed gives the tasks of a job that were heard to be running, by index.
	// The map is the caller's.
	Observed(id fsm.JobID) map[uint32]sequencer.Observation
	// Workers gives what the leader knows of these workers, as far as they are up;
	// of all if none is named. The map is the caller's.
	Workers(ids ...fsm.WorkerID) map[fsm.WorkerID]sequencer.WorkerStatus
}

// Raft is what this package needs of consensus; *raftnode.Node has it.
type Raft interface {
	// ReadIndex returns once a quorum has confirmed that this replica is the
	// leader, in a term of which it has committed an entry. Any error but ctx's
	// means that it is not, or not yet.
	ReadIndex(ctx context.Context) (uint64, error)
	// Leader returns id and address of the leader, both empty if not known.
	Leader() (id, address string)
	// Term returns the current term.
	Term() uint64
	// State returns leader, follower, candidate or shutdown.
	State() string
	// LastIndex returns the index of the last entry of the log.
	LastIndex() uint64
	// LastContact returns when this follower last heard from a leader; the zero
	// time if never.
	LastContact() time.Time
}

// LogReader reads what attempts wrote; package session has it.
type LogReader interface {
	// Logs calls send with pieces of what the attempt wrote, in order, until
	// there is no more or, with follow, until the attempt has ended. It returns
	// the first error of send as it is.
	Logs(ctx context.Context, h fsm.HeldAttempt, stream dtaskv1.LogStream, follow bool, send func(*dtaskv1.LogData) error) error
}

// Process are counters of this process that other packages keep.
type Process struct {
	Syncs         uint64 // synced writes of the log store
	LeaderChanges uint64 // other leaders than before, as seen here
}

// MaxSubmitRate is the largest Config.SubmitRate.
const MaxSubmitRate = 1_000_000

// Config is what a Server needs. All is required unless its comment says
// otherwise. The functions are called from many goroutines and must not block.
type Config struct {
	ServerID string
	Machine  *fsm.Machine
	// Leader gives the present term; the nil interface outside of one.
	Leader func() Leader
	// Raft gives the running consensus; the nil interface until it runs.
	Raft func() Raft
	Logs LogReader
	// History has the jobs that have left the state. Optional.
	History *history.History
	Logger  *slog.Logger

	// Totals gives the sequencer's counters over all terms. Optional.
	Totals func() sequencer.Stats
	// Process gives further counters. Optional.
	Process func() Process
	// Classify returns what an error of LogReader, or of another service on this
	// server, means to the caller; nil if it doesn't know the error. Optional.
	Classify func(error) *Error
	// Enter decides about a call before anything is made for it, by its full
	// method name; its error goes through the same table as those of handlers. It
	// must not wait. nil: all may enter.
	Enter func(ctx context.Context, method string) (context.Context, error)
	// Options are further options of the gRPC server, such as credentials.
	// Interceptors among them run inside of this package's.
	Options []grpc.ServerOption

	// MaxPayload bounds the payload of a task, in bytes; default 64 KiB, at
	// most 128 KiB.
	MaxPayload int
	// TaskDefaults complete the policies of jobs that leave time-out or retry
	// to the coordinator.
	TaskDefaults spec.TaskDefaults
	// UploadBytes bounds the memory of all submissions that are being received;
	// default 512 MiB, which is room for the largest job that is allowed.
	UploadBytes int64
	// UploadPause is how long a client may take to send its next message;
	// default 10 s.
	UploadPause time.Duration
	// SubmitRate is how many jobs one owner may submit in a second, up to
	// 1,000,000; 0 = as many as he likes. SubmitBurst is how many at once after a
	// time of rest; default 10 × SubmitRate, at least 1. The limit is the
	// leader's.
	SubmitRate  float64
	SubmitBurst int
	// LeaderWait is how long a call may wait while this replica neither leads nor knows who
	// does; default 300 ms.
	LeaderWait time.Duration
	// StopLimit is how long Serve waits for calls to end when it is told to
	// stop, before it cuts them off; default 2 s.
	StopLimit time.Duration
}

// Defaults fills in what is not set.
func (c *Config) Defaults() {
	if c.MaxPayload == 0 {
		c.MaxPayload = spec.DefaultPayload
	}
	if c.UploadBytes == 0 {
		c.UploadBytes = 512 << 20
	}
	if c.UploadPause == 0 {
		c.UploadPause = 10 * time.Second
	}
	if c.SubmitBurst == 0 {
		c.SubmitBurst = max(1, int(math.Ceil(10*c.SubmitRate)))
	}
	if c.LeaderWait == 0 {
		c.LeaderWait = 300 * time.Millisecond
	}
	if c.StopLimit == 0 {
		c.StopLimit = 2 * time.Second
	}
	if c.Totals == nil {
		c.Totals = func() sequencer.Stats { return sequencer.Stats{} }
	}
	if c.Process == nil {
		c.Process = func() Process { return Process{} }
	}
	if c.Classify == nil {
		c.Classify = func(error) *Error { return nil }
	}
}

// Validate gives all that is missing or out of range, joined.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New("api: "+what))
		}
	}
	check(c.ServerID != "", "ServerID is needed")
	check(c.Machine != nil && c.Logger != nil && c.Logs != nil, "Machine, Logger and Logs are needed")
	check(c.Leader != nil && c.Raft != nil, "Leader and Raft are needed")
	check(c.MaxPayload > 0 && c.MaxPayload <= spec.MaxPayload, "MaxPayload must be 1 to 131072 bytes")
	check(c.UploadBytes >= 2*maxMessage, "UploadBytes must be at least 2 MiB")
	check(c.SubmitRate >= 0 && c.SubmitRate <= MaxSubmitRate, "SubmitRate must be 0 to 1000000 jobs per second")
	check(c.SubmitBurst > 0, "SubmitBurst must be above 0")
	check(c.UploadPause > 0 && c.StopLimit > 0, "UploadPause and StopLimit must be above 0")
	return errors.Join(errs...)
}
