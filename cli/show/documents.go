package show

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Job is a job in JSON. Fields are only ever added. Times that are not set are
// null.
type Job struct {
	ID             string  `json:"id"`
	Name           string  `json:"name"`
	State          string  `json:"state"`
	Owner          string  `json:"owner"`
	Priority       string  `json:"priority"`
	SubmittedAt    *string `json:"submitted_at"`
	StartedAt      *string `json:"started_at"`
	CompletedAt    *string `json:"completed_at"`
	TasksTotal     uint32  `json:"tasks_total"`
	TasksCompleted uint32  `json:"tasks_completed"`
	TasksFailed    uint32  `json:"tasks_failed"`
	Retries        uint64  `json:"retries"`
	Version        uint32  `json:"version,omitempty"` // 1 at first, one more with each update
	// Outcome is what the ordinary tasks made of it, while clean-up tasks run.
	Outcome string `json:"outcome,omitempty"`
	// MaxFailures is how many tasks may fail for good without the job failing,
	// FailuresBorne how many have, if they are no more than that.
	MaxFailures   uint32 `json:"max_failures,omitempty"`
	FailuresBorne uint32 `json:"failures_borne,omitempty"`
}

// JobWithTasks is what `status JOB` prints.
type JobWithTasks struct {
	Job
	Arrays []Array `json:"arrays,omitempty"`
	Tasks  []Task  `json:"tasks"`
}

// Array is how far an array is, in JSON.
type Array struct {
	ID           string            `json:"id"`
	Tasks        uint32            `json:"tasks"`
	Items        uint32            `json:"items"` // more than tasks if they are executed in chunks
	MaxParallel  uint32            `json:"max_parallel,omitempty"`
	TasksByState map[string]uint32 `json:"tasks_by_state"`
}

// ArrayWithTasks is what `status JOB/ARRAY` prints.
type ArrayWithTasks struct {
	Job   string `json:"job"`
	ID    string `json:"id"`
	Tasks []Task `json:"tasks"`
}

// Task is a task in JSON.
type Task struct {
	ID          string  `json:"id"`
	State       string  `json:"state"`
	Attempt     uint32  `json:"attempt"`
	Worker      string  `json:"worker"`
	Error       string  `json:"error"`
	StartedAt   *string `json:"started_at"`
	CompletedAt *string `json:"completed_at"`
	Retries     uint32  `json:"retries"`
	// When its last checkpoint was saved; none of a task that has ended.
	CheckpointAt *string `json:"checkpoint_at,omitempty"`
	// Reused says that it ended with the result of another task, ReusedFrom
	// (JOB/TASK), without being run.
	Reused     bool   `json:"reused,omitempty"`
	ReusedFrom string `json:"reused_from,omitempty"`
}

// Jobs is what `list` prints.
type Jobs struct {
	Jobs []Job `json:"jobs"`
	// Incomplete says that jobs that ended a while ago may be missing here.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Cluster is what `cluster status` prints.
type Cluster struct {
	Leader  string   `json:"leader"`
	Term    uint64   `json:"term"`
	Members []Member `json:"members"`
}

// Member is a coordinator in JSON.
type Member struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	State   string `json:"state"`
	Applied uint64 `json:"applied"`
	Lag     uint64 `json:"lag"`
	Voter   bool   `json:"voter"` // false while it catches up
}

// Workers is what `worker list` prints.
type Workers struct {
	Workers []Worker `json:"workers"`
	More    bool     `json:"more,omitempty"` // there are workers after the last one
}

// Worker is a worker in JSON.
type Worker struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"`
	State   string            `json:"state"`
	Slots   uint32            `json:"slots"`
	Running uint32            `json:"running"`
	Queued  uint32            `json:"queued"`   // held beyond slots
	Ahead   uint32            `json:"prefetch"` // how many may be held beyond slots
	Labels  map[string]string `json:"labels"`
	// Of a worker that drains by order.
	DrainUntil  string `json:"drain_until,omitempty"`
	DrainReason string `json:"drain_reason,omitempty"`
}

// Summary is what `status` without a job prints.
type Summary struct {
	Cluster Cluster `json:"cluster"`
	Jobs    []Job   `json:"jobs"`
}

// Results is what `result JOB` prints: the terminal tasks' results by task id.
type Results struct {
	ID      string            `json:"id"`
	State   string            `json:"state"`
	Results map[string]Result `json:"results"`
}

// Result is what one task left. Result is the JSON value that the task wrote,
// or a string if it wrote something else, or null.
type Result struct {
	Result       json.RawMessage `json:"result"`
	Output       string          `json:"output"`
	OutputSize   *int64          `json:"output_size"`
	OutputSHA256 string          `json:"output_sha256"`
	Error        string          `json:"error"`
}

// JobOf makes the document of a job.
func JobOf(j *dtaskv1.Job) Job {
	out := Job{
		ID: j.GetId(), Name: j.GetName(), State: JobState(j.GetState()), Owner: j.GetOwner(), Priority: Priority(j.GetPriority()),
		SubmittedAt: stamp(j.GetSubmittedAt()), StartedAt: stamp(j.GetStartedAt()), CompletedAt: stamp(j.GetCompletedAt()),
		TasksTotal: j.GetTasksTotal(), TasksCompleted: j.GetTasksCompleted(), TasksFailed: j.GetTasksFailed(), Retries: j.GetRetries(), Version: j.GetVersion(),
		MaxFailures: j.GetMaxFailures(), FailuresBorne: j.GetFailuresTolerated(),
	}
	if j.GetOutcome() != dtaskv1.JobState_JOB_STATE_UNSPECIFIED {
		out.Outcome = JobState(j.GetOutcome())
	}
	return out
}

// ArraysOf makes the documents of arrays.
func ArraysOf(arrays []*dtaskv1.ArrayStatus) []Array {
	out := make([]Array, 0, len(arrays))
	for _, a := range arrays {
		out = append(out, Array{ID: a.GetId(), Tasks: a.GetTasks(), Items: a.GetItems(), MaxParallel: a.GetMaxParallel(), TasksByState: a.GetTasksByState()})
	}
	return out
}

// JobsOf makes the documents of jobs; never nil.
func JobsOf(jobs []*dtaskv1.Job) []Job {
	out := make([]Job, 0, len(jobs))
	for _, j := range jobs {
		out = append(out, JobOf(j))
	}
	return out
}

// TaskOf makes the document of a task.
func TaskOf(t *dtaskv1.Task) Task {
	out := Task{
		ID: t.GetId(), State: TaskState(t.GetState()), Attempt: t.GetAttempt(), Worker: t.GetWorker(), Error: t.GetError(),
		StartedAt: stamp(t.GetStartedAt()), CompletedAt: stamp(t.GetCompletedAt()), Retries: t.GetRetries(),
		CheckpointAt: stamp(t.GetCheckpointAt()),
	}
	if j := t.GetReusedJob(); j != "" {
		out.Reused, out.ReusedFrom = true, j+"/"+t.GetReusedTask()
	}
	return out
}

// ClusterOf makes the document of a cluster's status.
func ClusterOf(s *dtaskv1.StatusResponse) Cluster {
	out := Cluster{Leader: s.GetLeader(), Term: s.GetTerm(), Members: make([]Member, 0, len(s.GetMembers()))}
	for _, m := range s.GetMembers() {
		out.Members = append(out.Members, Member{ID: m.GetId(), Address: m.GetAddress(), State: m.GetState(), Applied: m.GetApplied(), Lag: m.GetLag(), Voter: m.GetVoter()})
	}
	return out
}

// WorkersOf makes the document of the list of workers.
func WorkersOf(workers []*dtaskv1.Worker) Workers {
	out := Workers{Workers: make([]Worker, 0, len(workers))}
	for _, w := range workers {
		out.Workers = append(out.Workers, WorkerOf(w))
	}
	return out
}

// WorkerOf makes the document of a worker.
func WorkerOf(w *dtaskv1.Worker) Worker {
	out := Worker{
		ID: w.GetId(), Name: w.GetName(), State: w.GetState(), Slots: w.GetSlots(), Running: w.GetRunning(), Labels: w.GetLabels(),
		Queued: w.GetQueued(), Ahead: w.GetPrefetch(),
		DrainReason: w.GetDrainReason(),
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	if until := stamp(w.GetDrainUntil()); until != nil {
		out.DrainUntil = *until
	}
	return out
}

// ResultsOf makes the document of a job's results.
func ResultsOf(r *dtaskv1.GetResultResponse) Results {
	out := Results{ID: r.GetJob().GetId(), State: JobState(r.GetJob().GetState()), Results: make(map[string]Result, len(r.GetResults()))}
	for _, t := range r.GetResults() {
		one := Result{Result: value(t.GetResult()), Output: t.GetOutput(), OutputSHA256: t.GetOutputSha256(), Error: t.GetError()}
		if size := t.GetOutputSize(); t.GetOutputSha256() != "" {
			one.OutputSize = &size
		}
		out.Results[t.GetTask()] = one
	}
	return out
}

// value is a result as JSON: itself if it is JSON, so that large numbers keep
// all digits, and a string otherwise.
func value(b []byte) json.RawMessage {
	if len(b) == 0 {
		return nil
	}
	var compact bytes.Buffer
	if json.Compact(&compact, b) == nil {
		return compact.Bytes()
	}
	compact.Reset()
	enc := json.NewEncoder(&compact)
	enc.SetEscapeHTML(false)
	if enc.Encode(string(b)) != nil {
		return nil // does not happen: every string has a JSON form
	}
	return bytes.TrimSpace(compact.Bytes())
}

// stamp is a moment, in milliseconds since 1970, as RFC 3339 in UTC; nil for 0.
func stamp(ms int64) *string {
	if ms == 0 {
		return nil
	}
	s := time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
	return &s
}

// JobState is a job's state as users write it.
func JobState(s dtaskv1.JobState) string { return word(s.String(), "JOB_STATE_") }

// TaskState is a task's state as users write it.
func TaskState(s dtaskv1.TaskState) string { return word(s.String(), "TASK_STATE_") }

// Priority is a priority as users write it.
func Priority(p dtaskv1.Priority) string { return word(p.String(), "PRIORITY_") }

func word(name, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(name, prefix))
}
