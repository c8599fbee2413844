package document

import dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"

// Explanation is why a task is in its state, and what would let it start now.
type Explanation struct {
	Job      string        `json:"job"`
	ID       string        `json:"id"`
	State    string        `json:"state"`
	Reasons  []Reason      `json:"reasons"`
	Workers  []WorkerGroup `json:"workers"`
	Changes  []StartChange `json:"changes"`
	Complete bool          `json:"complete"`
	Index    uint64        `json:"index"`
	Estimate *Estimate     `json:"estimate,omitempty"`
}

// JobExplanation is why the first unfinished tasks of a job are in their states.
type JobExplanation struct {
	Job      string      `json:"job"`
	State    string      `json:"state"`
	Reasons  []Reason    `json:"reasons"`
	Tasks    []TaskGroup `json:"tasks"`
	Complete bool        `json:"complete"`
	Index    uint64      `json:"index"`
}

// TaskGroup has tasks with the same reason: their number, and the names of some.
type TaskGroup struct {
	State  string   `json:"state"`
	Tasks  uint32   `json:"tasks"`
	Names  []string `json:"names"`
	Reason Reason   `json:"reason"`
}

// Estimate is when a task is expected to start. From and To are missing if Code is not
// expected.
type Estimate struct {
	Code string  `json:"code"`
	Text string  `json:"text"`
	From *string `json:"from,omitempty"`
	To   *string `json:"to,omitempty"`
	Job  string  `json:"job,omitempty"`
	Task string  `json:"task,omitempty"`
	// RunP50MS and RunP90MS are of the latest run times of tasks like the task itself.
	RunP50MS *int64 `json:"run_p50_ms,omitempty"`
	RunP90MS *int64 `json:"run_p90_ms,omitempty"`
}

// Reason is a reason, or an obstacle at a worker. Code is a stable word; Text is for
// people and may change. Amounts are in Unit.
type Reason struct {
	Code    string `json:"code"`
	Text    string `json:"text"`
	Job     string `json:"job,omitempty"`
	Task    string `json:"task,omitempty"`
	Worker  string `json:"worker,omitempty"`
	Attempt uint32 `json:"attempt,omitempty"`
	Name    string `json:"name,omitempty"`
	Value   string `json:"value,omitempty"`
	Want    *int64 `json:"want,omitempty"`
	Free    *int64 `json:"free,omitempty"`
	Total   *int64 `json:"total,omitempty"`
	// Saved is how much of a quota is saved for the older task in Tasks.
	Saved  *int64  `json:"saved,omitempty"`
	Unit   string  `json:"unit,omitempty"`
	Until  *string `json:"until,omitempty"`
	Detail string  `json:"detail,omitempty"`
	// Varies is true if the workers of a group differ: Free and Total are those of the worker
	// that has most free.
	Varies bool     `json:"varies,omitempty"`
	Tasks  []string `json:"tasks,omitempty"`
	// Cause is why the task that is waited for is in its state, as the text of a reason.
	CauseCode string `json:"cause_code,omitempty"`
	Cause     string `json:"cause,omitempty"`
	// Alternative is the number, from 1, of the alternative of the task's resources that it is
	// about; 0: of all.
	Alternative uint32 `json:"alternative,omitempty"`
}

// WorkerGroup has workers with equal obstacles: their number, and the names of some.
type WorkerGroup struct {
	Workers   uint32   `json:"workers"`
	Names     []string `json:"names"`
	Obstacles []Reason `json:"obstacles"`
}

// StartChange is a single change after which the task starts now. If Workers is above 1,
// it is a change of any one of them.
type StartChange struct {
	Code    string       `json:"code"`
	Text    string       `json:"text"`
	Name    string       `json:"name,omitempty"`
	Value   string       `json:"value,omitempty"`
	Amount  *int64       `json:"amount,omitempty"`
	Unit    string       `json:"unit,omitempty"`
	Workers uint32       `json:"workers,omitempty"`
	Names   []string     `json:"names,omitempty"`
	Worker  *WorkerOffer `json:"worker,omitempty"`
	// Alternative is the number, from 1, of the one that needs less.
	Alternative uint32 `json:"alternative,omitempty"`
}

// WorkerOffer is the least that a new worker must offer. Resources are in thousandths of
// their units.
type WorkerOffer struct {
	Slots     uint32            `json:"slots"`
	Type      string            `json:"type"`
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels"`
	Resources map[string]int64  `json:"resources"`
	Secrets   []string          `json:"secrets"`
}

// NewExplanation converts an explanation.
func NewExplanation(e *dtaskv1.ExplainResponse) Explanation {
	return Explanation{
		Job: e.GetJob(), ID: e.GetTask(), State: TaskState(e.GetState()), Reasons: list(e.GetReasons(), newReason),
		Workers: list(e.GetWorkers(), newWorkerGroup), Changes: list(e.GetChanges(), newStartChange), Complete: e.GetComplete(), Index: e.GetIndex(),
		Estimate: newEstimate(e.GetEstimate()),
	}
}

// NewJobExplanation converts an explanation of a job.
func NewJobExplanation(e *dtaskv1.ExplainResponse) JobExplanation {
	return JobExplanation{
		Job: e.GetJob(), State: JobState(e.GetJobState()), Reasons: list(e.GetReasons(), newReason), Tasks: list(e.GetTasks(), newTaskGroup),
		Complete: e.GetComplete(), Index: e.GetIndex(),
	}
}

func newTaskGroup(g *dtaskv1.TaskGroup) TaskGroup {
	return TaskGroup{State: TaskState(g.GetState()), Tasks: g.GetTasks(), Names: append([]string{}, g.GetNames()...), Reason: newReason(g.GetReason())}
}

func newEstimate(e *dtaskv1.StartEstimate) *Estimate {
	if e == nil {
		return nil
	}
	doc := &Estimate{
		Code: e.GetCode(), Text: e.GetText(), Job: e.GetJob(), Task: e.GetTask(), From: optionalTime(e.GetFrom()), To: optionalTime(e.GetTo()),
	}
	if e.GetP90Ms() > 0 {
		doc.RunP50MS, doc.RunP90MS = new(e.GetP50Ms()), new(e.GetP90Ms())
	}
	return doc
}

func newReason(r *dtaskv1.Reason) Reason {
	doc := Reason{
		Code: r.GetCode(), Text: r.GetText(), Job: r.GetJob(), Task: r.GetTask(), Worker: r.GetWorker(), Attempt: r.GetAttempt(),
		Name: r.GetName(), Value: r.GetValue(), Unit: r.GetUnit(), Until: optionalTime(r.GetUntil()), Detail: r.GetDetail(), Varies: r.GetVaries(), Tasks: r.GetTasks(),
		CauseCode: r.GetCauseCode(), Cause: r.GetCause(), Alternative: r.GetAlternative(),
	}
	if r.GetSaved() != 0 {
		doc.Saved = new(r.GetSaved())
	}
	if r.GetUnit() != "" {
		doc.Want, doc.Free, doc.Total = new(r.GetWant()), new(r.GetFree()), new(r.GetTotal())
	}
	return doc
}

func newWorkerGroup(g *dtaskv1.WorkerGroup) WorkerGroup {
	return WorkerGroup{Workers: g.GetWorkers(), Names: append([]string{}, g.GetNames()...), Obstacles: list(g.GetObstacles(), newReason)}
}

func newStartChange(c *dtaskv1.StartChange) StartChange {
	doc := StartChange{
		Code: c.GetCode(), Text: c.GetText(), Name: c.GetName(), Value: c.GetValue(), Unit: c.GetUnit(), Workers: c.GetWorkers(), Names: c.GetNames(),
		Alternative: c.GetAlternative(),
	}
	if c.GetUnit() != "" {
		doc.Amount = new(c.GetAmount())
	}
	if o := c.GetWorker(); o != nil {
		doc.Worker = new(newWorkerOffer(o))
	}
	return doc
}

func newWorkerOffer(o *dtaskv1.WorkerOffer) WorkerOffer {
	doc := WorkerOffer{
		Slots: o.GetSlots(), Type: o.GetType(), Namespace: o.GetNamespace(), Labels: o.GetLabels(), Resources: o.GetResources(),
		Secrets: append([]string{}, o.GetSecrets()...),
	}
	if doc.Labels == nil {
		doc.Labels = map[string]string{}
	}
	if doc.Resources == nil {
		doc.Resources = map[string]int64{}
	}
	return doc
}
