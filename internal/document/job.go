package document

import (
	"strconv"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Job is a job without its tasks.
type Job struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"`
	Owner string `json:"owner"`
	// Namespace is omitted for the default one.
	Namespace string `json:"namespace,omitempty"`
	// Queue is omitted for the default one.
	Queue    string            `json:"queue,omitempty"`
	Priority string            `json:"priority"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Params are the values of the parameters of the job file.
	Params         map[string]string `json:"params,omitempty"`
	SubmittedAt    *string           `json:"submitted_at"`
	StartedAt      *string           `json:"started_at"`
	CompletedAt    *string           `json:"completed_at"`
	TasksTotal     uint32            `json:"tasks_total"`
	TasksCompleted uint32            `json:"tasks_completed"`
	TasksFailed    uint32            `json:"tasks_failed"`
	// Retries are failures, timeouts and losses that are followed by another attempt.
	Retries uint64 `json:"retries"`
	// Requeues are other attempts that are followed by another: released by their
	// worker, drained, stolen or not begun.
	Requeues uint64 `json:"requeues,omitempty"`
	Version  uint32 `json:"version,omitempty"` // starts at 1; every update, retry and purge adds 1
	// Outcome is the result of the ordinary tasks while cleanup tasks run.
	Outcome string `json:"outcome,omitempty"`
	// MaxFailures is how many tasks may fail without failing the job.
	// FailuresTolerated is how many have failed, while the limit is not exceeded.
	MaxFailures       uint32 `json:"max_failures,omitempty"`
	FailuresTolerated uint32 `json:"failures_tolerated,omitempty"`
	// Needs are the jobs that must end before any task is ready. Waiting is true while
	// one of them is open.
	Needs   []JobNeed `json:"needs,omitempty"`
	Waiting bool      `json:"waiting,omitempty"`
	// Run is the run of a schedule that the job is.
	Run *JobRun `json:"run,omitempty"`
	// StartAt, StartAfterMS and ExpiresMS are as submitted. ScheduledUntil is the time before
	// which no task is ready, while the job waits for it.
	StartAt        *string `json:"start_at,omitempty"`
	StartAfterMS   int64   `json:"start_after_ms,omitempty"`
	ExpiresMS      int64   `json:"expires_ms,omitempty"`
	ScheduledUntil *string `json:"scheduled_until,omitempty"`
	// Concurrency is as submitted. WaitsFor are the jobs with its key that the job waits for.
	Concurrency *JobConcurrency `json:"concurrency,omitempty"`
	WaitsFor    []string        `json:"waits_for,omitempty"`
}

// JobConcurrency bounds how many jobs with a key run at the same time.
type JobConcurrency struct {
	Key     string `json:"key"`
	Limit   uint32 `json:"limit"`
	Overlap string `json:"overlap"`
}

// JobRun is a run of a schedule.
type JobRun struct {
	Schedule   string  `json:"schedule"`
	TickAt     *string `json:"tick_at"`            // the time that it runs for; null: none
	PreviousAt *string `json:"previous_at"`        // the time that the run before it was for; null: none
	Manual     bool    `json:"manual"`             // a user started it, for a tick or not
	RerunOf    string  `json:"rerun_of,omitempty"` // the job whose times it has
}

// JobNeed is a job that another one needs.
type JobNeed struct {
	Job   string `json:"job"`
	When  string `json:"when"`            // completed, ended or failed
	Ended string `json:"ended,omitempty"` // its state, if it has ended
}

func newJobNeed(n *dtaskv1.JobNeed) JobNeed {
	doc := JobNeed{Job: strconv.FormatUint(n.GetJob(), 10), When: Condition(n.GetCondition())}
	if n.GetEndedAs() != dtaskv1.JobState_JOB_STATE_UNSPECIFIED {
		doc.Ended = JobState(n.GetEndedAs())
	}
	return doc
}

// Jobs is a list of jobs.
type Jobs struct {
	Jobs []Job `json:"jobs"`
	// Incomplete is true while a rebuilt replica is fetching its history: finished
	// jobs may be missing.
	Incomplete bool `json:"incomplete,omitempty"`
}

// JobWithTasks is a job with its arrays and tasks.
type JobWithTasks struct {
	Job

	Arrays []Array `json:"arrays,omitempty"`
	Tasks  []Task  `json:"tasks"`
}

// Array is the progress of an array.
type Array struct {
	ID           string            `json:"id"`
	Tasks        uint32            `json:"tasks"`
	Items        uint32            `json:"items"` // more than tasks if they run in chunks
	MaxParallel  uint32            `json:"max_parallel,omitempty"`
	TasksByState map[string]uint32 `json:"tasks_by_state"`
	// PendingReason is why no worker that is up can run its pending tasks.
	PendingReason string `json:"pending_reason,omitempty"`
}

// Change is one step of a watch.
type Change struct {
	Index uint64 `json:"index"`
	Whole bool   `json:"whole"` // tasks lists every task of the job
	Job   Job    `json:"job"`
	Tasks []Task `json:"tasks"` // the tasks that changed
}

// Results holds the results of a job's terminal tasks by task ID.
type Results struct {
	ID      string            `json:"id"`
	State   string            `json:"state"`
	Results map[string]Result `json:"results"`
}

// NewJob converts a job.
func NewJob(j *dtaskv1.Job) Job {
	doc := Job{
		ID: j.GetId(), Name: j.GetName(), State: JobState(j.GetState()),
		Owner: j.GetOwner(), Namespace: j.GetNamespace(), Queue: j.GetQueue(), Priority: Priority(j.GetPriority()), Labels: j.GetLabels(), Params: j.GetParams(),
		SubmittedAt: optionalTime(j.GetSubmittedAt()),
		StartedAt:   optionalTime(j.GetStartedAt()), CompletedAt: optionalTime(j.GetCompletedAt()),
		TasksTotal: j.GetTasksTotal(), TasksCompleted: j.GetTasksCompleted(),
		TasksFailed: j.GetTasksFailed(), Retries: j.GetRetries(), Requeues: j.GetRequeues(), Version: j.GetVersion(),
		MaxFailures: j.GetMaxFailures(), FailuresTolerated: j.GetFailuresTolerated(), Waiting: j.GetWaiting(),
		StartAt: optionalTime(j.GetStartAtMs()), StartAfterMS: j.GetStartAfterMs(), ExpiresMS: j.GetExpiresMs(), ScheduledUntil: optionalTime(j.GetScheduledUntil()),
	}
	if c := j.GetConcurrency(); c != nil {
		overlap := max(c.GetOverlap(), dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_SKIP)
		doc.Concurrency = &JobConcurrency{Key: c.GetKey(), Limit: max(c.GetLimit(), 1), Overlap: ScheduleOverlap(overlap)}
	}
	doc.WaitsFor = j.GetWaitsFor()
	for _, n := range j.GetNeeds() {
		doc.Needs = append(doc.Needs, newJobNeed(n))
	}
	if r := j.GetRun(); r != nil {
		doc.Run = &JobRun{Schedule: r.GetSchedule(), TickAt: optionalTime(r.GetTickMs()), PreviousAt: optionalTime(r.GetPreviousMs()), Manual: r.GetManual()}
		if r.GetRerunOf() != 0 {
			doc.Run.RerunOf = strconv.FormatUint(r.GetRerunOf(), 10)
		}
	}
	if j.GetOutcome() != dtaskv1.JobState_JOB_STATE_UNSPECIFIED {
		doc.Outcome = JobState(j.GetOutcome())
	}
	return doc
}

// NewJobs converts a list of jobs; incomplete is true if finished jobs may be
// missing.
func NewJobs(jobs []*dtaskv1.Job, incomplete bool) Jobs {
	return Jobs{Jobs: list(jobs, NewJob), Incomplete: incomplete}
}

// NewJobWithTasks converts a job, its arrays and the given tasks.
func NewJobWithTasks(j *dtaskv1.Job, tasks []*dtaskv1.Task) JobWithTasks {
	return JobWithTasks{Job: NewJob(j), Arrays: list(j.GetArrays(), newArray), Tasks: list(tasks, NewTask)}
}

func newArray(a *dtaskv1.ArrayStatus) Array {
	return Array{
		ID: a.GetId(), Tasks: a.GetTasks(), Items: a.GetItems(),
		MaxParallel: a.GetMaxParallel(), TasksByState: a.GetTasksByState(), PendingReason: a.GetPendingReason(),
	}
}

// NewChange converts one step of a watch.
func NewChange(index uint64, whole bool, j *dtaskv1.Job, tasks []*dtaskv1.Task) Change {
	return Change{Index: index, Whole: whole, Job: NewJob(j), Tasks: list(tasks, NewTask)}
}

// NewResults converts the results of a job.
func NewResults(r *dtaskv1.GetResultResponse) Results {
	doc := Results{
		ID: r.GetJob().GetId(), State: JobState(r.GetJob().GetState()),
		Results: make(map[string]Result, len(r.GetResults())),
	}
	for _, t := range r.GetResults() {
		doc.Results[t.GetTask()] = newResult(t)
	}
	return doc
}
