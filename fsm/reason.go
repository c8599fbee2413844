package fsm

import "fmt"

// Reason is why an operation was rejected. A rejected operation changes
// nothing and is rejected on every replica in the same way. Zero means
// accepted.
type Reason uint8

// The reasons. The sequencer checks every operation against its view before
// it proposes it. Only OutOfOrder occurs in the log: a leader proposed an
// entry on top of one that it then could not store. The others exist because
// the state machine is total.
const (
	Accepted        Reason = iota
	JobNotFound            // unknown, not sealed, or forgotten
	TaskNotFound           // the job has no task of this index or name
	WorkerNotFound         // unknown number
	KeyNotFound            // unknown idempotency key or key of a remembered result
	WrongState             // the state of the task, job or worker does not allow the operation
	StaleAttempt           // not the live attempt, or not held by this worker
	AlreadyAccepted        // the same completion was accepted before
	AlreadyEnded           // the job or task has ended
	KeyConflict            // the idempotency key belongs to another job or request
	OutOfOrder             // a number, index or count does not follow the previous one
	Malformed              // the contents do not decode or are out of range
	BudgetExceeded         // all checkpoints together would be too long
	VersionMismatch        // the update is for another version of the job
	LimitExceeded          // a limit of the replicated state would be exceeded
	NeedNotFound           // a job that the job needs is unknown or forgotten
	NeedUnmet              // a job that the job needs ended otherwise than required
	AboveLevel             // the cluster's feature level does not have the operation yet

	IdentityNotFound  // unknown or forgotten
	IdentityRevoked   // the identity was revoked
	NameTaken         // a live identity has the name
	CredentialInUse   // another identity has the same secret or key
	JoinTokenNotFound // unknown or forgotten, or the secret is another
	JoinTokenRevoked  // the join token was revoked
	JoinTokenExpired  // by the leader's clock
	JoinTokenUsedUp   // it has created all identities that it may
	JoinTokenPurpose  // it is for another kind of member
	JoinTokenName     // the name does not match the join token's pattern

	ScheduleNotFound // unknown or deleted
	SchedulePaused   // the schedule is paused
	TickPassed       // the tick is not after the last one that was decided
	RunOpen          // earlier jobs with the concurrency key have not ended, and the overlap rule forbids another one

	QueueNotFound // unknown or deleted
	LimitNotFound // unknown or deleted
)

// Class is what a rejection means to the client that requested the operation.
type Class uint8

// The classes of rejections.
const (
	ClassInternal Class = iota // no client can cause it
	ClassNotFound
	ClassEnded    // the object has ended, or its state does not allow the operation
	ClassConflict // the idempotency key belongs to another request
	ClassRefused
)

// reasons has a row for each reason: its text and its class.
var reasons = [...]struct {
	text  string
	class Class
}{
	Accepted:        {"accepted", ClassInternal},
	JobNotFound:     {"job not found", ClassNotFound},
	TaskNotFound:    {"task not found", ClassNotFound},
	WorkerNotFound:  {"worker not found", ClassNotFound},
	KeyNotFound:     {"key not found", ClassInternal},
	WrongState:      {"wrong state", ClassEnded},
	StaleAttempt:    {"stale attempt", ClassEnded},
	AlreadyAccepted: {"already accepted", ClassEnded},
	AlreadyEnded:    {"already ended", ClassEnded},
	KeyConflict:     {"idempotency key used for another request", ClassConflict},
	OutOfOrder:      {"out of order", ClassInternal},
	Malformed:       {"malformed", ClassInternal},
	BudgetExceeded:  {"checkpoint budget exceeded", ClassRefused},
	VersionMismatch: {"version mismatch", ClassEnded},
	LimitExceeded:   {"limit exceeded", ClassEnded},
	NeedNotFound:    {"needed job not found", ClassNotFound},
	NeedUnmet:       {"needed job did not end as required", ClassEnded},
	AboveLevel:      {"not available before the upgrade of the cluster is finished: see dtaskctl cluster upgrade status", ClassRefused},

	IdentityNotFound:  {"identity not found", ClassNotFound},
	IdentityRevoked:   {"identity revoked", ClassRefused},
	NameTaken:         {"name taken by another identity", ClassEnded},
	CredentialInUse:   {"secret or key in use by another identity", ClassEnded},
	JoinTokenNotFound: {"join token not found", ClassNotFound},
	JoinTokenRevoked:  {"join token revoked", ClassEnded},
	JoinTokenExpired:  {"join token expired", ClassEnded},
	JoinTokenUsedUp:   {"join token used up", ClassEnded},
	JoinTokenPurpose:  {"join token has another purpose", ClassEnded},
	JoinTokenName:     {"name does not match the join token", ClassEnded},

	ScheduleNotFound: {"schedule not found", ClassNotFound},
	SchedulePaused:   {"schedule paused", ClassEnded},
	TickPassed:       {"tick was decided before", ClassEnded},
	RunOpen:          {"an earlier job with the concurrency key has not ended", ClassEnded},

	QueueNotFound: {"queue not found", ClassNotFound},
	LimitNotFound: {"limit not found", ClassNotFound},
}

// Class returns what the reason means to a client.
func (r Reason) Class() Class {
	if int(r) >= len(reasons) {
		return ClassInternal
	}
	return reasons[r].class
}

// String returns the reason as text.
func (r Reason) String() string {
	if int(r) >= len(reasons) {
		return fmt.Sprintf("reason(%d)", uint8(r))
	}
	return reasons[r].text
}
