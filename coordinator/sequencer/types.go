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

// ErrOutcomeUnknown is returned when an entry was proposed and its fate cannot
// be known here. The caller must repeat with the same key, or look.
var ErrOutcomeUnknown = errors.New("sequencer: outcome unknown")

// BusyError says that nothing was proposed because something is full. It is
// definite; the caller should repeat after RetryAfter.
type BusyError struct {
	What       string
	Limit      Limit // zero: none of those that are counted
	RetryAfter time.Duration
}

// Limit is what is full.
type Limit uint8

// What a BusyError can mean. Zero is none of them.
const (
	LimitInbox  Limit = iota + 1 // requests that wait
	LimitMemory                  // tasks and idempotency keys that are held
	LimitDisk                    // room on the leader's disk
)

// Error says what is full.
func (e *BusyError) Error() string { return "sequencer: busy: " + e.What }

// RejectedError says that the state does not allow what was asked. It is
// definite, and linearized: it is given only after everything before it is
// committed.
type RejectedError struct{ Reason fsm.Reason }

// Error gives the reason in words.
func (e *RejectedError) Error() string { return "sequencer: refused: " + e.Reason.String() }

// NameInUseError refuses a worker whose name another live process uses.
type NameInUseError struct{ Name string }

// Error names the worker.
func (e *NameInUseError) Error() string {
	return fmt.Sprintf("sequencer: worker name %q is in use by another process", e.Name)
}

// Submission is a whole job, checked and encoded.
type Submission struct {
	Key       string // idempotency key, 1–128 bytes
	Generated bool   // the key was made by a program: remembered for 10 minutes, not 24 hours
	Header    []byte // dtask.v1.JobHeader, encoded deterministically
	Total     uint32 // tasks in all chunks
	Chunks    []*fsm.Chunk
	Sum       uint32   // CRC-32C over the chunks
	Digest    [16]byte // of header and tasks; the same job has the same
}

// Submitted is the answer to a submission.
type SubmitResult struct {
	ID      fsm.JobID
	Existed bool   // the key was known, with the same job
	Index   uint64 // log index at which the job exists; 0 if it existed
}

// Stored is the answer to one submission of many.
type SubmitOutcome struct {
	SubmitResult
	Err error // as Submit returns it
}

// Observation is what the leader heard about a running task.
type Observation struct {
	Attempt   uint32
	StartedMS int64 // by the leader's clock, when it heard
	Permille  uint32
	Text      string
}

// WorkerStatus is what the leader knows of a worker beside the replicated state.
type WorkerStatus struct {
	Attached bool // has a session
	Draining bool // says that it leaves; an order to drain is in the replicated state
	Held     int  // live attempts
	Prefetch int  // attempts that it takes beyond its slots while tasks are short
}

// Hello is how a worker introduces itself.
type Hello struct {
	Name, Incarnation string
	Slots             uint32
	Prefetch          uint32 // attempts that it takes beyond its slots
	Labels            []fsm.Label
	Resources         []fsm.Resource
	Version, Address  string
	Held              []fsm.AttemptRef // received, not ended
	Ended             []fsm.AttemptRef // ended, report not acknowledged
}

// Welcome is the answer to a Hello.
type Welcome struct {
	Worker fsm.WorkerID
	Stop   []fsm.AttemptRef // held attempts that are not live any more
	// Draining says that a person drains the worker.
	Draining bool
}

// Session is a worker's stream, as the sequencer uses it. The session package
// has it. Methods never block and may be called from any goroutine.
type Session interface {
	// Send queues a message; several may go out as one. It goes with the next Flush at the latest.
	Send(WorkerMessage)
	// Flush sends what is queued. It is called when all sessions that an entry is news for
	// have theirs, since some share a stream.
	Flush()
	// LastContact is when the worker last said anything, by the monotonic clock.
	LastContact() time.Time
	// Close ends the stream: another session has taken its place.
	Close(reason error)
}

// Outgoing is what goes to a worker once an entry is committed.
type WorkerMessage struct {
	Assignments []fsm.AssignItem
	Stops       []Stop
	StartGrants []fsm.AttemptRef
	AckThrough  uint64 // 0 = none
	Exceptions  []*dtaskv1.ReportVerdict
	Drain       *dtaskv1.DrainOrder // nil: it is as it was
	// Checkpoints are answers to what the worker sent.
	Checkpoints []*dtaskv1.CheckpointResult
	// GiveBack are attempts to hand back if they have not begun.
	StealRequests []fsm.AttemptRef
}

// StopOrder ends an attempt.
type Stop struct {
	Attempt fsm.AttemptRef
	Reason  dtaskv1.StopReason
}

// Stats are counters since the start of the process, over all terms.
type Stats struct {
	Entries, Operations, Bytes         uint64
	Assignments, Completions, Failures uint64
	Requeues, WorkersDown, Submissions uint64
	StealRequests, Steals              uint64
}
