package document

import (
	"encoding/json"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Task is a task of a job.
type Task struct {
	ID          string  `json:"id"`
	State       string  `json:"state"`
	Attempt     uint32  `json:"attempt"`
	Worker      string  `json:"worker"`
	Error       string  `json:"error"`
	StartedAt   *string `json:"started_at"`
	CompletedAt *string `json:"completed_at"`
	Retries     uint32  `json:"retries"`
	// PendingReason is why no worker that is up can run the task, if it is
	// pending and none can.
	PendingReason string `json:"pending_reason,omitempty"`
	// KeyWorker is the worker that the affinity of a pending, assigned or running task chooses
	// now. SpilledFrom is the one that it chose when the present leader assigned the task to
	// another one, and SpilledLoad what ran there and waited for it, divided by its slots.
	KeyWorker   string  `json:"key_worker,omitempty"`
	SpilledFrom string  `json:"spilled_from,omitempty"`
	SpilledLoad float64 `json:"spilled_load,omitempty"`
	// CheckpointAt is when the last checkpoint was saved. Finished tasks have none.
	CheckpointAt *string `json:"checkpoint_at,omitempty"`
	// Reused is true if the task completed with the result of another task,
	// ReusedFrom (JOB/TASK), without running.
	Reused     bool   `json:"reused,omitempty"`
	ReusedFrom string `json:"reused_from,omitempty"`
}

// TaskWithHistory is a task with its attempts that failed or were lost.
type TaskWithHistory struct {
	Task

	Job     string    `json:"job"`
	Type    string    `json:"type"`
	History []Attempt `json:"history"`
}

// ArrayWithTasks is an array with its tasks.
type ArrayWithTasks struct {
	Job   string `json:"job"`
	ID    string `json:"id"`
	Tasks []Task `json:"tasks"`
}

// Attempt is an attempt that failed or was lost.
type Attempt struct {
	Attempt   uint32  `json:"attempt"`
	Worker    string  `json:"worker"`
	StartedAt *string `json:"started_at"`
	EndedAt   *string `json:"ended_at"`
	Error     string  `json:"error"`
}

// Result is the result of a task, empty until it has completed. Its value is JSON if the task wrote JSON, a
// string if it wrote anything else, and null if it wrote nothing.
type Result struct {
	State        string          `json:"state"`
	Result       json.RawMessage `json:"result"`
	Output       string          `json:"output"`
	OutputSize   *int64          `json:"output_size"`
	OutputSHA256 string          `json:"output_sha256"`
	Error        string          `json:"error"`
}

// TaskResult is the result of a task with its ID, for lists.
type TaskResult struct {
	ID string `json:"id"` // TASK
	Result
}

// LogList is the output of several tasks.
type LogList struct {
	Logs []Logs `json:"logs"`
}

// Logs is the output of one attempt.
type Logs struct {
	ID      string `json:"id"` // JOB/TASK
	Attempt uint32 `json:"attempt"`
	Stdout  string `json:"stdout"`
	Stderr  string `json:"stderr"`
}

// DeadLetter is a task that exhausted its attempts.
type DeadLetter struct {
	ID        string  `json:"id"` // JOB/TASK
	Job       string  `json:"job"`
	JobName   string  `json:"job_name"`
	Task      string  `json:"task"`
	Type      string  `json:"type"`
	Owner     string  `json:"owner"`
	Namespace string  `json:"namespace,omitempty"` // omitted for the default one
	DiedAt    *string `json:"died_at"`
	Attempts  uint32  `json:"attempts"`
	Error     string  `json:"error"`
}

// DeadLetters is a list of dead letters.
type DeadLetters struct {
	DeadLetters []DeadLetter `json:"dead_letters"`
}

// DeadLetterWithHistory is a dead letter with its payload and attempts. The
// payload has the form of Result.Result.
type DeadLetterWithHistory struct {
	DeadLetter

	Payload json.RawMessage `json:"payload"`
	History []Attempt       `json:"history"`
}

// NewTask converts a task.
func NewTask(t *dtaskv1.Task) Task {
	doc := Task{
		ID: t.GetId(), State: TaskState(t.GetState()), Attempt: t.GetAttempt(),
		Worker: t.GetWorker(), Error: t.GetError(), Retries: t.GetRetries(), PendingReason: t.GetPendingReason(),
		StartedAt: optionalTime(t.GetStartedAt()), CompletedAt: optionalTime(t.GetCompletedAt()),
		CheckpointAt: optionalTime(t.GetCheckpointAt()),
		KeyWorker:    t.GetKeyWorker(), SpilledFrom: t.GetSpilledFrom(), SpilledLoad: float64(t.GetSpilledPermille()) / 1000,
	}
	if j := t.GetReusedJob(); j != "" {
		doc.Reused, doc.ReusedFrom = true, j+"/"+t.GetReusedTask()
	}
	return doc
}

// NewTaskWithHistory converts a task of the job with this ID.
func NewTaskWithHistory(job string, t *dtaskv1.Task) TaskWithHistory {
	return TaskWithHistory{
		Task: NewTask(t), Job: job, Type: t.GetType(), History: list(t.GetHistory(), newAttempt),
	}
}

// NewArrayWithTasks converts the tasks of an array.
func NewArrayWithTasks(job, id string, tasks []*dtaskv1.Task) ArrayWithTasks {
	return ArrayWithTasks{Job: job, ID: id, Tasks: list(tasks, NewTask)}
}

// DeadLetterID names a dead letter as commands take it: 42/fetch.
func DeadLetterID(l *dtaskv1.DeadLetter) string { return l.GetJob() + "/" + l.GetTask() }

// NewDeadLetters converts a list of dead letters.
func NewDeadLetters(letters []*dtaskv1.DeadLetter) DeadLetters {
	return DeadLetters{DeadLetters: list(letters, newDeadLetter)}
}

// NewDeadLetterWithHistory converts a dead letter with its payload and attempts.
func NewDeadLetterWithHistory(l *dtaskv1.DeadLetter) DeadLetterWithHistory {
	return DeadLetterWithHistory{
		DeadLetter: newDeadLetter(l), Payload: rawValue(l.GetPayload()),
		History: list(l.GetHistory(), newAttempt),
	}
}

func newDeadLetter(l *dtaskv1.DeadLetter) DeadLetter {
	return DeadLetter{
		ID: DeadLetterID(l), Job: l.GetJob(), JobName: l.GetJobName(),
		Task: l.GetTask(), Type: l.GetType(), Owner: l.GetOwner(), Namespace: l.GetNamespace(),
		DiedAt: optionalTime(l.GetDiedAt()), Attempts: l.GetAttempts(), Error: l.GetError(),
	}
}

func newAttempt(a *dtaskv1.AttemptRecord) Attempt {
	return Attempt{
		Attempt: a.GetNumber(), Worker: a.GetWorker(),
		StartedAt: optionalTime(a.GetStartedAt()), EndedAt: optionalTime(a.GetEndedAt()), Error: a.GetError(),
	}
}

// NewTaskResult converts a result.
func NewTaskResult(r *dtaskv1.TaskResult) TaskResult {
	return TaskResult{ID: r.GetTask(), Result: newResult(r)}
}

func newResult(r *dtaskv1.TaskResult) Result {
	doc := Result{
		State: TaskState(r.GetState()), Result: rawValue(r.GetResult()), Output: r.GetOutput(),
		OutputSHA256: r.GetOutputSha256(), Error: r.GetError(),
	}
	if r.GetOutputSha256() != "" {
		doc.OutputSize = new(r.GetOutputSize())
	}
	return doc
}
