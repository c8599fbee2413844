package fsm

import "fmt"

// JobID is the number of a job, from 1 in the order of their uploads. It is
// never reused.
type JobID uint64

// WorkerID is the number of a worker's name, from 1. The name keeps it until
// the cluster forgets it.
type WorkerID uint32

// TaskRef names a task: its job and its index there, from 0.
type TaskRef struct {
	Job   JobID
	Index uint32
}

// AttemptRef names an attempt of a task. Attempt starts at 1, only grows and
// is never reused: with the cluster's epoch it is the fencing token.
type AttemptRef struct {
	TaskRef
	Attempt uint32
}

// String returns the form for logs: job/index@attempt.
func (a AttemptRef) String() string { return fmt.Sprintf("%d/%d@%d", a.Job, a.Index, a.Attempt) }

// TaskState is the stored state of a task. Users also see running and
// aggregated, which are derived: the leader observes the first, and the
// second follows from the end of the job.
type TaskState uint8

// The states of a task. The zero value is never valid.
const (
	Blocked   TaskState = iota + 1 // waits for dependencies
	Scheduled                      // waits for its retry time
	Pending                        // ready
	Assigned                       // a worker holds its live attempt
	Completed
	Failed    // refused, fatal, or failed without retries asked
	Cancelled // by a user, a deadline, a stopped job or a dependency
	Dead      // retries exhausted
	Lost      // at-most-once, outcome unknown
	numStates
)

var taskStateNames = [numStates]string{"", "blocked", "scheduled", "pending", "assigned", "completed", "failed", "cancelled", "dead", "lost"}

// String is the name of the state as users see it.
func (s TaskState) String() string {
	if s == 0 || s >= numStates {
		return fmt.Sprintf("state(%d)", uint8(s))
	}
	return taskStateNames[s]
}

// Terminal reports whether a task in this state never changes again.
func (s TaskState) Terminal() bool { return s >= Completed && s < numStates }

// JobState is the state of a job.
type JobState uint8

// The states of a job. Users see jobs from their seal on.
const (
	JobUploading JobState = iota + 1
	JobPending            // sealed, nothing assigned yet
	JobRunning
	JobCompleted
	JobFailed
	JobCancelled
	numJobStates
)

var jobStateNames = [numJobStates]string{"", "uploading", "pending", "running", "completed", "failed", "cancelled"}

// String is the name of the state as users see it.
func (s JobState) String() string {
	if s == 0 || s >= numJobStates {
		return fmt.Sprintf("state(%d)", uint8(s))
	}
	return jobStateNames[s]
}

// Terminal reports whether a job in this state has ended.
func (s JobState) Terminal() bool { return s >= JobCompleted && s < numJobStates }

// WorkerState is the replicated state of a worker.
type WorkerState uint8

// The states of a worker.
const (
	WorkerUp   WorkerState = iota + 1
	WorkerDown             // liveness timeout passed, or it left
)

// String is the name of the state as users see it.
func (s WorkerState) String() string {
	switch s {
	case WorkerUp:
		return "up"
	case WorkerDown:
		return "down"
	default:
		return fmt.Sprintf("state(%d)", uint8(s))
	}
}
