package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// Leader is a term of leadership; *sequencer.Sequencer is one. Its errors are those of
// package sequencer. It must be a pointer: == distinguishes terms.
type Leader interface {
	// SubmitMany stores jobs independently of each other and returns one outcome for
	// each, in order. A job with the key and digest of a stored job, or of one that
	// is being stored, has its outcome.
	SubmitMany(ctx context.Context, s []sequencer.Submission) []sequencer.SubmitOutcome
	// Revive returns when tasks that ended run again. A change with a known key
	// returns the first outcome. It returns a *sequencer.RejectedError if the state
	// rejects it: with VersionMismatch if the job has another version, with
	// KeyConflict if another request used the key.
	Revive(ctx context.Context, op fsm.Revive, generated bool) (sequencer.ChangeResult, error)
	// Purge is Revive for the removal of dead letters.
	Purge(ctx context.Context, op fsm.Purge, generated bool) (sequencer.ChangeResult, error)
	// CancelJob returns when the ordinary tasks of the job are cancelled. The job is
	// cancelled after its cleanup tasks have run. already: it was cancelled before.
	CancelJob(ctx context.Context, id fsm.JobID, reason string) (already bool, err error)
	// CancelJobNow is CancelJob for all tasks, cleanup tasks included.
	CancelJobNow(ctx context.Context, id fsm.JobID, reason string) (already bool, err error)
	// CancelTask returns when the task is cancelled.
	CancelTask(ctx context.Context, t fsm.TaskRef, reason string) (already bool, err error)
	// CancelArray is CancelTask for all tasks of the array that t belongs to.
	CancelArray(ctx context.Context, t fsm.TaskRef, reason string) (already bool, err error)
	// Update returns when tasks that have not started are changed. It returns a
	// *sequencer.RejectedError with WrongState if they have started, with
	// VersionMismatch if the job has another version.
	Update(ctx context.Context, c sequencer.Change) (sequencer.ChangeResult, error)
	// Drain returns when the worker of this name gets no new work. Attempts that still
	// run at the deadline are requeued. It returns a *sequencer.RejectedError with
	// WorkerNotFound for an unknown name.
	Drain(ctx context.Context, name string, deadline time.Duration, reason string) error
	// Undrain returns when the worker of this name may get work again. already: it was
	// not draining. Errors as for Drain.
	Undrain(ctx context.Context, name string) (already bool, err error)
	// SetBackupSchedule returns when the schedule is stored, with the time at which it was
	// set. It returns a *sequencer.RejectedError with AboveLevel if some replicas may not
	// know it.
	SetBackupSchedule(ctx context.Context, schedule fsm.BackupSchedule) (fsm.BackupSchedule, error)
	// DeleteBackupSchedule returns when there is no schedule. already: there was none.
	// Errors as for SetBackupSchedule.
	DeleteBackupSchedule(ctx context.Context) (already bool, err error)
	// SetSchedule returns a schedule when it is set. A repeated request changes nothing. It
	// returns a *sequencer.RejectedError with VersionMismatch, LimitExceeded, or
	// IdentityRevoked or IdentityNotFound for its owner.
	SetSchedule(ctx context.Context, n sequencer.NewSchedule) (*fsm.Schedule, error)
	// PauseSchedule and ResumeSchedule return a schedule when it is paused, or fires again.
	// They return a *sequencer.RejectedError with ScheduleNotFound for an unknown one.
	PauseSchedule(ctx context.Context, id fsm.ScheduleID, reason, by string) (*fsm.Schedule, error)
	ResumeSchedule(ctx context.Context, id fsm.ScheduleID) (*fsm.Schedule, error)
	// DeleteSchedule returns when a schedule is removed. Errors as for PauseSchedule, and
	// with VersionMismatch if it has another version; 0 = any.
	DeleteSchedule(ctx context.Context, id fsm.ScheduleID, version uint32) error
	// RunSchedule returns when a run has started. A request with a known key returns the
	// first run. Errors as for PauseSchedule, and with KeyConflict, RunOpen, IdentityRevoked
	// or IdentityNotFound.
	RunSchedule(ctx context.Context, n sequencer.ScheduleRun) (sequencer.SubmitResult, error)
	// SetQueue returns a queue when it is set. A repeated request changes nothing. It
	// returns a *sequencer.RejectedError with VersionMismatch or LimitExceeded.
	SetQueue(ctx context.Context, name string, to fsm.QueueSettings, version uint32, by string) (*fsm.Queue, error)
	// PauseQueue and ResumeQueue return a queue when nothing of it starts, or it starts
	// again; already: nothing had to change. They return a *sequencer.RejectedError with
	// QueueNotFound for an unknown one.
	PauseQueue(ctx context.Context, name, reason, by string) (q *fsm.Queue, already bool, err error)
	ResumeQueue(ctx context.Context, name, by string) (q *fsm.Queue, already bool, err error)
	// DeleteQueue returns when a queue is removed. Errors as for PauseQueue, and with
	// VersionMismatch, or WrongState while jobs or schedules name it.
	DeleteQueue(ctx context.Context, name string, version uint32) error
	limitLeader
	// QueueLoads returns what waits and runs in each queue. The caller owns the map.
	QueueLoads(ctx context.Context) (map[string]sequencer.QueueLoad, error)
	// MoveJob is Update for the queue of a whole job. It returns a
	// *sequencer.RejectedError with QueueNotFound for an unknown one.
	MoveJob(ctx context.Context, op fsm.MoveJob, generated bool) (sequencer.ChangeResult, error)
	// ClockAgrees reports whether the leader's wall clock is believed to be right.
	ClockAgrees() bool
	// Observed returns the tasks of a job that are observed to run, by index. The
	// caller owns the map.
	Observed(id fsm.JobID) map[uint32]sequencer.Observation
	// Workers returns what the leader knows about these workers, or about all if none
	// is named; workers that are not up are missing. The caller owns the map.
	Workers(ids ...fsm.WorkerID) map[fsm.WorkerID]sequencer.WorkerStatus
	// Explain returns what the leader knows about why a task is in its state, after the
	// commit of everything that the answer takes into account. The caller owns it.
	Explain(ctx context.Context, t fsm.TaskRef) (*sequencer.Explanation, error)
}

// Raft is what this package needs of Raft; *raftnode.Node has it.
type Raft interface {
	// ReadIndex returns once a quorum has confirmed that this replica leads a term in
	// which it has committed an entry. Any error but ctx's means that it does not lead,
	// or not yet.
	ReadIndex(ctx context.Context) (uint64, error)
	// Leader returns id and address of the leader, both empty if unknown.
	Leader() (id, address string)
	// Term returns the current term.
	Term() uint64
	// State returns leader, follower, candidate or shutdown.
	State() string
	// LastIndex returns the index of the last entry of the log.
	LastIndex() uint64
	// LastContact returns when this follower last had contact with a leader; the zero
	// time if never.
	LastContact() time.Time
}

// LogReader reads the output of attempts; package session has it.
type LogReader interface {
	// Logs calls send with the output of the attempt, in order, up to its current end
	// or, with follow, until the attempt has ended. It returns the first error of send
	// unchanged.
	Logs(ctx context.Context, h fsm.HeldAttempt, stream dtaskv1.LogStream, follow bool, send func(*dtaskv1.LogData) error) error
}

// Process has counters of this process that other packages keep.
type Process struct {
	Syncs         uint64 // synced writes of the log store
	LeaderChanges uint64 // changes of the leader that this replica has seen
}

// MaxSubmitRate is the largest Config.SubmitRate.
const MaxSubmitRate = 1_000_000

// Config is what a Server needs. Functions are called from many goroutines and must
// not block, except for those that may wait.
type Config struct {
	ServerID string
	Machine  *fsm.Machine
	// ClusterID returns the id of the cluster, which never changes; empty while unknown.
	ClusterID func() string
	// Trust returns a text that changes with the CAs that this replica trusts, at most 16
	// hexadecimal digits; empty in plaintext. Clients learn from it that they have others.
	// Optional.
	Trust func() string
	// Leader returns the current term; the nil interface outside of one.
	Leader func() Leader
	// Raft returns the running node; the nil interface until Raft runs.
	Raft func() Raft
	Logs LogReader
	// History has the jobs that have left the state; may be nil.
	History *history.History
	// AskBarrier asks the leader at an address for the index of a Barrier. It may wait for the
	// leader. nil: only the leader answers linearizable reads.
	AskBarrier func(ctx context.Context, leader string) (uint64, error)
	// Backups is what backups need; nil: they are refused.
	Backups *Backups
	// Load returns how much the leader does, in the term that it leads; nil outside of one.
	// nil: calls of Load are busy.
	Load func() *Load
	// Disk measures the files of this replica. It may wait for the disk. nil: calls of
	// DiskUsage are busy.
	Disk func() (Disk, error)
	// Debug calls file for each file of a debug bundle, one after the other, which may
	// take longer than the CPU profile that it includes; 0 = without one. It ends with ctx,
	// and returns the first error of file. nil: calls of Debug are busy.
	Debug  func(ctx context.Context, profile time.Duration, file DebugFile) error
	Logger *slog.Logger
	// Wall returns the wall clock, by which the ticks of schedules are shown; default
	// time.Now.
	Wall func() time.Time

	// Totals returns the sequencer's counters over all terms.
	Totals func() sequencer.Stats
	// Process returns further counters.
	Process func() Process
	// Classify returns what an error of LogReader, or of another service on this
	// server, means to the caller; nil if it does not know the error.
	Classify func(error) *Error
	// Authenticate returns who makes a call, by its full method name; nil for a caller
	// without credentials. It is called once per call, before anything is allocated for
	// it, and the context that it returns is that of the call, with auth.Access if its
	// caller may lose access. An *auth.DeniedError or an *Error reaches the caller. nil: the cluster has no identities, and everyone may call
	// everything.
	Authenticate func(ctx context.Context, method string) (context.Context, *auth.Principal, error)
	// Abandon ends what Authenticate has begun for a call that is refused afterwards, by
	// its rights or by Enter. It gets the context of Authenticate, or of Enter. Optional.
	Abandon func(ctx context.Context)
	// Enter decides about a call that is authenticated and allowed, before anything is
	// allocated for it. Its error gets a status like those of handlers. nil: all calls
	// may enter.
	Enter func(ctx context.Context, method string) (context.Context, error)
	// Audit keeps the audit log; nil: calls are not recorded.
	Audit Auditor
	// Options are further options of the gRPC server, such as credentials.
	// Interceptors among them run inside those of this package.
	Options []grpc.ServerOption

	// MaxPayload bounds the payload of a task, in bytes; default 64 KiB, at
	// most 128 KiB.
	MaxPayload int
	// TaskDefaults complete policies without a timeout or retries.
	TaskDefaults spec.TaskDefaults
	// UploadBytes bounds the memory of all submissions that are being received;
	// default 512 MiB, enough for the largest job that is allowed.
	UploadBytes int64
	// UploadPause is how long a client may take to send its next message;
	// default 10 s.
	UploadPause time.Duration
	// SubmitRate is how many jobs per second one owner may submit to a namespace, up to
	// MaxSubmitRate; 0 = unlimited. SubmitBurst is how many an owner may submit at once after a pause;
	// default 10 × SubmitRate, at least 1. The leader's limit applies.
	SubmitRate  float64
	SubmitBurst int
	// CheckWebhook returns why the webhook of a new job can never be called. nil: all
	// webhooks are accepted. It gets URLs that may be invalid, which package spec reports.
	CheckWebhook func(url string) error
	// LeaderWait is how long a call may wait while no leader is known; default 300 ms.
	LeaderWait time.Duration
	// StopTimeout is how long Serve waits for calls to end when it stops, before it
	// cancels them; default 2 s.
	StopTimeout time.Duration
}

// Defaults sets defaults for unset limits.
func (c *Config) Defaults() {
	c.MaxPayload = cmp.Or(c.MaxPayload, spec.DefaultPayload)
	c.UploadBytes = cmp.Or(c.UploadBytes, 512<<20)
	c.UploadPause = cmp.Or(c.UploadPause, 10*time.Second)
	c.SubmitBurst = cmp.Or(c.SubmitBurst, max(1, int(math.Ceil(10*c.SubmitRate))))
	c.LeaderWait = cmp.Or(c.LeaderWait, 300*time.Millisecond)
	c.StopTimeout = cmp.Or(c.StopTimeout, 2*time.Second)
	if c.Wall == nil {
		c.Wall = time.Now
	}
}

// Validate returns all missing or invalid values, joined.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New("api: "+what))
		}
	}
	check(c.ServerID != "", "ServerID is required")
	check(c.Machine != nil && c.Logger != nil && c.Logs != nil, "Machine, Logger and Logs are required")
	check(c.Leader != nil && c.Raft != nil && c.ClusterID != nil, "Leader, Raft and ClusterID are required")
	check(c.Totals != nil && c.Process != nil && c.Classify != nil, "Totals, Process and Classify are required")
	check(c.MaxPayload > 0 && c.MaxPayload <= spec.MaxPayload, "MaxPayload must be 1 to 131072 bytes")
	check(c.UploadBytes >= 2*maxMessage, "UploadBytes must be at least 2 MiB")
	check(c.SubmitRate >= 0 && c.SubmitRate <= MaxSubmitRate, "SubmitRate must be 0 to 1000000 jobs per second")
	check(c.SubmitBurst > 0, "SubmitBurst must be above 0")
	check(c.UploadPause > 0 && c.StopTimeout > 0, "UploadPause and StopTimeout must be above 0")
	return errors.Join(errs...)
}
