package sequencer

import (
	"errors"
	"fmt"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ErrTermEnded is returned when nothing was proposed because this replica no
// longer leads. It is definite: the caller should go to the next leader.
var ErrTermEnded = errors.New("sequencer: term ended")

// ErrOutcomeUnknown is returned when an entry was proposed and this replica
// can't know whether it is committed. The caller must repeat the request with
// the same key, or read the state.
var ErrOutcomeUnknown = errors.New("sequencer: outcome unknown")

// BusyError is returned when nothing was proposed because a limit is reached.
// It is definite; the caller should repeat the request after RetryAfter.
type BusyError struct {
	What       string
	Limit      Limit // zero: a limit that is not counted
	RetryAfter time.Duration
}

// Limit is the kind of a reached limit, for counters.
type Limit uint8

// The limits. Zero is unset.
const (
	LimitInbox     Limit = iota + 1 // waiting requests
	LimitMemory                     // tasks and idempotency keys in memory
	LimitDisk                       // free space on the leader's disk
	LimitQueueRate                  // submissions to a queue
)

// Error returns the reached limit.
func (e *BusyError) Error() string { return "sequencer: busy: " + e.What }

// RejectedError is returned when the state doesn't allow the request. It is
// definite and linearized: it is returned after everything before it is
// committed.
type RejectedError struct{ Reason fsm.Reason }

// Error returns the text of the reason.
func (e *RejectedError) Error() string { return "sequencer: rejected: " + e.Reason.String() }

// NameInUseError refuses a worker whose name another process uses. That process
// may have died without closing its connection; Silent tells how likely this is.
// The worker may try again.
type NameInUseError struct {
	Name    string
	Host    string        // of the other process, as it states it
	Address string        // of its connection; empty if unknown
	Silent  time.Duration // time since the last contact with it
}

// Error names the worker.
func (e *NameInUseError) Error() string {
	return fmt.Sprintf("sequencer: worker name %q is in use by another process", e.Name)
}

// Submission is a whole job, checked and encoded.
type Submission struct {
	Key       string // idempotency key, 1–128 bytes
	Generated bool   // the key was generated: it is kept for 10 minutes instead of 24 hours
	Header    []byte // dtask.v1.JobHeader, encoded deterministically
	Queue     string // that the header names
	Total     uint32 // tasks in all chunks
	Chunks    []*fsm.Chunk
	Sum       uint32   // CRC-32C over the chunks
	Digest    [16]byte // of header and tasks; equal for equal jobs
}

// SubmitResult is the answer to a submission.
type SubmitResult struct {
	ID      fsm.JobID
	Existed bool   // the key was known, with the same job
	Index   uint64 // log index from which the job exists; 0 if it existed
}

// SubmitOutcome is the answer to one of several submissions.
type SubmitOutcome struct {
	SubmitResult
	Err error // as Submit returns it
}

// Observation is what a worker reported about a running task, and what the leader knows of its
// assignment.
type Observation struct {
	Attempt   uint32
	StartedMS int64 // by the leader's clock
	Permille  uint32
	Text      string
	// Spilled is the worker that its affinity chose when it was assigned to another one; 0 of
	// others.
	Spilled Affinity
}

// IsRunning reports whether a worker has reported the attempt.
func (o *Observation) IsRunning() bool {
	return o.Attempt != 0 && (o.StartedMS != 0 || o.Spilled.Worker == 0)
}

// WorkerStatus is what the leader knows of a worker beyond the replicated
// state.
type WorkerStatus struct {
	Attached bool // it has a session
	Draining bool // it shuts down; a drain by the operator is in the replicated state
	Held     int  // live attempts
	Prefetch int  // attempts that it takes beyond its slots while tasks are short
}

// Hello is the registration of a worker.
type Hello struct {
	Name, Incarnation string
	Slots             uint32
	Prefetch          uint32 // attempts that it takes beyond its slots
	Labels            []fsm.Label
	Resources         []fsm.Resource
	Version, Address  string
	// Peer is the address of the worker's connection; empty if unknown.
	Peer string
	// LockID identifies the locked file of the worker's directory: of all
	// processes with the same one, at most one is alive. Empty if unknown.
	LockID string
	Held   []fsm.AttemptRef // received and not ended
	Ended  []fsm.AttemptRef // ended, with an unacknowledged report
}

// Welcome is the answer to a Hello.
type Welcome struct {
	Worker fsm.WorkerID
	Stop   []fsm.AttemptRef // held attempts that are no longer live
	// Draining reports that the operator drains the worker.
	Draining bool
}

// Session is the stream of a worker; package session implements it. Its methods
// never block and may be called from any goroutine.
type Session interface {
	// Send queues a message; several may be sent as one. The next Flush sends
	// it at the latest.
	Send(WorkerMessage)
	// Flush sends what is queued. It is called after all sessions have their
	// messages of an entry, because sessions may share a stream.
	Flush()
	// LastContact returns when the worker last sent anything, by the monotonic
	// clock.
	LastContact() time.Time
	// Close ends the session. A message of the worker that LastContact doesn't
	// include afterwards is not answered.
	Close(reason error)
}

// WorkerMessage is sent to a worker after an entry is committed.
type WorkerMessage struct {
	Assignments []fsm.AssignItem
	Stops       []Stop
	StartGrants []fsm.AttemptRef // at-most-once attempts whose start is logged
	AckThrough  uint64           // 0 = none
	Exceptions  []*dtaskv1.ReportVerdict
	Drain       *dtaskv1.DrainOrder // nil: unchanged
	// Checkpoints are the answers to checkpoints of the worker.
	Checkpoints []*dtaskv1.CheckpointResult
	// StealRequests are attempts to release if they have not started.
	StealRequests []fsm.AttemptRef
}

// Stop ends an attempt.
type Stop struct {
	Attempt fsm.AttemptRef
	Reason  dtaskv1.StopReason
}

// Stats are counters since the start of the process, over all terms.
type Stats struct {
	Entries, Operations, Bytes         uint64
	Assignments, Completions, Failures uint64
	Requeues, WorkersDown, Submissions uint64
	Losses                             uint64
	StealRequests, Steals              uint64
}

// Since returns what was counted after earlier counters of the same process.
func (s Stats) Since(before Stats) Stats {
	return Stats{
		Entries: s.Entries - before.Entries, Operations: s.Operations - before.Operations, Bytes: s.Bytes - before.Bytes,
		Assignments: s.Assignments - before.Assignments, Completions: s.Completions - before.Completions, Failures: s.Failures - before.Failures,
		Requeues: s.Requeues - before.Requeues, WorkersDown: s.WorkersDown - before.WorkersDown, Submissions: s.Submissions - before.Submissions,
		Losses: s.Losses - before.Losses, StealRequests: s.StealRequests - before.StealRequests, Steals: s.Steals - before.Steals,
	}
}
