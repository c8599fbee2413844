package document

// Submission is the outcome of submitting one job.
type Submission struct {
	ID         string `json:"id"`
	Existed    bool   `json:"existed"` // submitted before with the same idempotency key
	TasksTotal int    `json:"tasks_total"`
}

// Submissions is the outcome of submitting several jobs.
type Submissions struct {
	Jobs []NamedSubmission `json:"jobs"`
}

// NamedSubmission is the outcome of one of several submissions.
type NamedSubmission struct {
	Submission

	Name  string `json:"name"`
	Error string `json:"error,omitempty"` // why the job was rejected
}

// Plan is a job that was checked and not submitted.
type Plan struct {
	Name       string   `json:"name"`
	TasksTotal int      `json:"tasks_total"`
	Levels     []uint32 `json:"levels"` // tasks in each topological level
	// Params are the values of the parameters of the job file.
	Params map[string]string `json:"params,omitempty"`
}

// Plans is several jobs that were checked and not submitted.
type Plans struct {
	Jobs []Plan `json:"jobs"`
}

// Cancellation is a cancelled job or task.
type Cancellation struct {
	ID      string `json:"id"`      // as typed: JOB or JOB/TASK
	Already bool   `json:"already"` // it had been cancelled before
}

// Update is an updated job or task.
type Update struct {
	ID      string `json:"id"`      // as typed: JOB or JOB/TASK
	Version uint32 `json:"version"` // of the job
	Existed bool   `json:"existed"` // updated before with the same idempotency key
}

// Requeue is how many dead letters were requeued.
type Requeue struct {
	Requeued int `json:"requeued"`
}

// Purge is how many dead letters were purged.
type Purge struct {
	Purged int `json:"purged"`
}
