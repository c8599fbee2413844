package cluster

import "time"

// Job is a job as dtaskctl prints it with -o json.
type Job struct {
	ID             string     `json:"id"`
	Name           string     `json:"name"`
	State          string     `json:"state"`
	Owner          string     `json:"owner"`
	Priority       string     `json:"priority"`
	SubmittedAt    *time.Time `json:"submitted_at"`
	StartedAt      *time.Time `json:"started_at"`
	CompletedAt    *time.Time `json:"completed_at"`
	TasksTotal     int        `json:"tasks_total"`
	TasksCompleted int        `json:"tasks_completed"`
	TasksFailed    int        `json:"tasks_failed"`
	Retries        int        `json:"retries"`
	Requeues       int        `json:"requeues"`
	Tasks          []Task     `json:"tasks"` // from status JOB only
}

// Task finds a task by id; nil if missing.
func (j Job) Task(id string) *Task {
	for i := range j.Tasks {
		if j.Tasks[i].ID == id {
			return &j.Tasks[i]
		}
	}
	return nil
}

// Ended tells whether the job stays as it is.
func (j Job) Ended() bool {
	return j.State == "completed" || j.State == "failed" || j.State == "cancelled"
}

// Task is a task as dtaskctl prints it.
type Task struct {
	ID          string     `json:"id"`
	State       string     `json:"state"`
	Attempt     int        `json:"attempt"`
	Worker      string     `json:"worker"`
	Error       string     `json:"error"`
	StartedAt   *time.Time `json:"started_at"`
	CompletedAt *time.Time `json:"completed_at"`
	Retries     int        `json:"retries"`
	// PendingReason is why no worker can run it.
	PendingReason string `json:"pending_reason"`
}

// Completed tells whether the task ended well.
func (t Task) Completed() bool { return t.State == "completed" || t.State == "aggregated" }

// Status is what `cluster status` prints.
type Status struct {
	Leader  string   `json:"leader"`
	Term    uint64   `json:"term"`
	Members []Member `json:"members"`
	Alarms  []Alarm  `json:"alarms"`
}

// Alarm is a state of a coordinator that an operator must know of.
type Alarm struct {
	Member  string `json:"member"`
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

// Member is one coordinator of a Status.
type Member struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	State   string `json:"state"`
	Applied uint64 `json:"applied"`
	Lag     uint64 `json:"lag"`
	Voter   bool   `json:"voter"`
}

// Member finds a member by id.
func (s Status) Member(id string) Member {
	for _, m := range s.Members {
		if m.ID == id {
			return m
		}
	}
	return Member{}
}

// Of finds a coordinator under the server id that it has now: the last one, while the
// cluster still lists a former one.
func (s Status) Of(n *Coordinator) (found Member) {
	for _, m := range s.Members {
		if n.Is(m.ID) && (found.ID == "" || m.State != "unreachable") {
			found = m
		}
	}
	return found
}

// WorkerInfo is one worker as `worker list` prints it.
type WorkerInfo struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"`
	State   string            `json:"state"`
	Slots   int               `json:"slots"`
	Running int               `json:"running"`
	Labels  map[string]string `json:"labels"`
}
