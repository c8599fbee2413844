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

// Ticks is when a schedule fires.
type Ticks struct {
	Ticks []Tick `json:"ticks"`
}

// Tick is one nominal time of a schedule.
type Tick struct {
	At    string `json:"at"`    // in UTC
	Local string `json:"local"` // in the zone of the schedule, with its offset
	Note  string `json:"note"`  // what is unusual about it; empty = nothing
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

// ChangedJobs is what a command did with several jobs or tasks.
type ChangedJobs struct {
	DryRun bool         `json:"dry_run,omitempty"` // nothing was changed
	Jobs   []ChangedJob `json:"jobs"`
}

// NewChangedJobs returns a document without jobs.
func NewChangedJobs(dryRun bool) ChangedJobs {
	return ChangedJobs{DryRun: dryRun, Jobs: []ChangedJob{}}
}

// ChangedJob is what a command did with one of several jobs or tasks.
type ChangedJob struct {
	ID    string   `json:"id"` // JOB or JOB/TASK
	Name  string   `json:"name"`
	Tasks []string `json:"tasks,omitempty"` // the named tasks of the job, if one call changes several
	// State is that of the job when it was selected, if it was read then, or why it was
	// skipped.
	State string `json:"state,omitempty"`
	// Result is cancelled or updated, unchanged (an earlier call did it), skipped (the job
	// no longer matched the filters), error, or planned (a dry run).
	Result  string `json:"result"`
	Version uint32 `json:"version,omitempty"` // of the job, after an update
	Error   string `json:"error,omitempty"`   // why it was skipped, or not changed
}

// Requeue is how many dead letters were requeued.
type Requeue struct {
	Requeued int  `json:"requeued"`
	DryRun   bool `json:"dry_run,omitempty"` // they would be
}

// Purge is how many dead letters were purged.
type Purge struct {
	Purged int  `json:"purged"`
	DryRun bool `json:"dry_run,omitempty"` // they would be
}
