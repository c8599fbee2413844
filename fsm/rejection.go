package fsm

import "fmt"

// Reason says why an operation was refused. A refused operation changes
// nothing and is refused alike on every replica. Zero means accepted.
type Reason uint8

// The reasons. The sequencer checks each operation against its view before it
// proposes it, so that in the log there are none but OutOfOrder, for what a leader
// proposed on top of an entry that it then could not store; the others exist because
// the state machine is total.
const (
	Accepted        Reason = iota
	JobNotFound            // unknown, not yet sealed, or forgotten
	TaskNotFound           // index or name not in the job
	WorkerNotFound         // unknown number
	WrongState             // the task, job or worker is not in a state that allows this
	StaleAttempt           // not the live attempt, or not held by this worker
	AlreadyAccepted        // the same completion was accepted before
	AlreadyEnded           // the job or task has ended
	KeyConflict            // the idempotency key belongs to another job
	OutOfOrder             // a number, index or count that does not follow the one before
	Malformed              // contents that do not decode or are out of range
	BudgetExceeded         // all of its kind together would be too long
	VersionMismatch        // the job has another version than the update is for
	LimitExceeded          // a bound of the replicated state would be passed
	numReasons
)

var reasonNames = [numReasons]string{
	"accepted", "no such job", "no such task", "no such worker", "wrong state", "stale attempt",
	"already accepted", "already ended", "key conflict", "out of order", "malformed", "over budget",
	"version differs", "too many",
}

// String names the reason in words.
func (r Reason) String() string {
	if r >= numReasons {
		return fmt.Sprintf("reason(%d)", uint8(r))
	}
	return reasonNames[r]
}
