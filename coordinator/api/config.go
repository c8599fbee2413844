package api

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"

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
	Submit(ctx context.Context, s sequencer.Submission) (sequencer.Submitted, error)
	// CancelJob returns when the job has ended as cancelled; already means that
	// it had before.
	CancelJob(ctx context.Context, id fsm.JobID, reason string) (already bool, err error)
	// CancelTask returns when the task has ended as cancelled; already means
	// that it had before.
	CancelTask(ctx context.Context, t fsm.TaskRef, reason string) (already bool, err error)
	// Retry returns when the job goes on with those of its tasks that are named,
	// by ascending indexes, or with all that ended without completing if none
	// is. It is a *sequencer.RejectedError with WrongState if one of them cannot
	// go on, or if there is none.
	Retry(ctx context.Context, id fsm.JobID, tasks []uint32) error
	// Purge returns when the tasks, named as for Retry, have left the dead
	// letters. It is a *sequencer.RejectedError with WrongState if one of them is
	// not dead, or if there is none.
	Purge(ctx context.Context, id fsm.JobID, tasks []uint32) error
	// Admit returns when the server id belongs to the instance. It is a
	// *sequencer.RejectedError if it belongs to another one.
	Admit(ctx context.Context, serverID, instance string) error
	// Observed gives the tasks of a job that were heard to be running, by index.
	// The map is the caller's.
	Observed(id fsm.JobID) map[uint32]sequencer.Observation
	// Workers gives what the leader knows of its workers. The map is the
	// caller's.
	Workers() map[fsm.WorkerID]sequencer.WorkerStatus
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
	Logs(ctx context.Context, h fsm.HeldItem, stream dtaskv1.LogStream, follow bool, send func(*dtaskv1.LogData) error) error
}

// Member is a replica of the cluster's configuration.
type Member struct {
	ID      string
	Address string // HOST:PORT that the others dial
}

// Identity is what this replica tells about itself before Raft runs.
type Identity struct {
	Instance    string // 32 hexadecimal digits; lives with the data folder
	ClusterID   string // empty while it is not known
	Empty       bool   // no Raft state in its folder
	PeersDigest string // of --peers
	Version     string
	HTTPAddress string
}

// Process are counters of this process that other packages keep.
type Process struct {
	Syncs         uint64 // synced writes of the log store
	LeaderChanges uint64 // other leaders than before, as seen here
}

// Config is what a Server needs. All is required unless its comment says
// otherwise. The functions are called from many goroutines and must not block.
type Config struct {
	ServerID string
	Machine  *fsm.Machine
	// Leader gives the present term; the nil interface outside of one.
	Leader func() Leader
	// Raft gives the running consensus; the nil interface until it runs.
	Raft func() Raft
	// Members gives the cluster's configuration, this replica included; empty
	// until Raft runs.
	Members  func() []Member
	Identity func() Identity
	Logs     LogReader
	// Peers are the connections to the other replicas. The Server does not
	// close them.
	Peers  *Peers
	Logger *slog.Logger

	// Totals gives the sequencer's counters over all terms. Optional.
	Totals func() sequencer.Stats
	// Process gives further counters. Optional.
	Process func() Process
	// Classify says what an error of LogReader, or of another service on this
	// server, means; 0 = it does not know. Optional.
	Classify func(error) Kind
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
		c.Classify = func(error) Kind { return 0 }
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
	check(c.Machine != nil && c.Logger != nil && c.Peers != nil && c.Logs != nil, "Machine, Logger, Peers and Logs are needed")
	check(c.Leader != nil && c.Raft != nil && c.Members != nil && c.Identity != nil, "Leader, Raft, Members and Identity are needed")
	check(c.MaxPayload > 0 && c.MaxPayload <= spec.MaxPayload, "MaxPayload must be 1 to 131072 bytes")
	check(c.UploadBytes >= 2*maxMessage, "UploadBytes must be at least 2 MiB")
	check(c.UploadPause > 0 && c.StopLimit > 0, "UploadPause and StopLimit must be above 0")
	return errors.Join(errs...)
}
