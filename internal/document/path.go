package document

// CriticalPath is the chain of tasks that determined the end of a job, or, while it runs,
// what it waits for now. The times of its tasks add up to TotalMS, from the submission on.
type CriticalPath struct {
	Job     string     `json:"job"`
	Name    string     `json:"name"`
	State   string     `json:"state"`
	TotalMS int64      `json:"total_ms"`
	Tasks   []PathTask `json:"tasks"` // in the order in which they ran
}

// PathTask is a task of a critical path. It became ready when the task before it had ended,
// or with the submission of the job. WaitingMS ends with its first known start, RetryingMS
// with the start of its last attempt.
type PathTask struct {
	ID          string  `json:"id"`
	State       string  `json:"state"`
	Worker      string  `json:"worker"`
	ReadyAt     *string `json:"ready_at"`
	StartedAt   *string `json:"started_at"` // of the last attempt
	CompletedAt *string `json:"completed_at"`
	WaitingMS   int64   `json:"waiting_ms"`
	RetryingMS  int64   `json:"retrying_ms"`
	RunningMS   int64   `json:"running_ms"`
	Retries     uint32  `json:"retries"`
}

// OptionalTime formats a Unix time in milliseconds; nil for 0.
func OptionalTime(ms int64) *string { return optionalTime(ms) }
