package document

import dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"

// JobPlan is how a job would run if it were submitted to an idle cluster.
type JobPlan struct {
	Name       string   `json:"name"`
	TasksTotal int      `json:"tasks_total"`
	Levels     []uint32 `json:"levels"` // tasks in each topological level
	Width      uint32   `json:"width"`  // tasks in the widest level
	Workers    uint32   `json:"workers"`
	Slots      uint64   `json:"slots"`
	SlotsInUse uint64   `json:"slots_in_use"`
	Runs       uint32   `json:"runs"` // earlier jobs that run times were read from

	Classes      []PlanClass  `json:"classes"`
	Bounds       []PlanBound  `json:"bounds"` // the longest first
	CriticalPath PlanPath     `json:"critical_path"`
	Makespan     PlanRange    `json:"makespan"`
	SlotTime     PlanRange    `json:"slot_time"`
	Unknown      []string     `json:"unknown"` // tasks and arrays without a run time
	LastJob      string       `json:"last_job,omitempty"`
	Changes      []PlanChange `json:"changes"`
	ChangesTotal uint32       `json:"changes_total"`
}

// PlanRange is a duration as a range: HighMS is null if the run time of some tasks is
// unknown, LowMS if nothing is known.
type PlanRange struct {
	LowMS  *int64 `json:"low_ms"`
	HighMS *int64 `json:"high_ms"`
}

// NewPlanRange converts a range. A range without a lower limit says nothing.
func NewPlanRange(low, high int64, bounded bool) (r PlanRange) {
	if low > 0 || bounded {
		r.LowMS = new(low)
	}
	if bounded {
		r.HighMS = new(high)
	}
	return r
}

// PlanClass has the tasks with equal demands. Workers is how many workers fit them, and
// AtOnce how many of them can run at the same time as if nothing else ran: on these workers, and
// within the quotas of the queue and the limits that they use.
type PlanClass struct {
	ID        string            `json:"id"` // of the first task
	Tasks     uint64            `json:"tasks"`
	Type      string            `json:"type"`
	Require   map[string]string `json:"require,omitempty"`
	Resources map[string]int64  `json:"resources,omitempty"` // in thousandths of their units
	// Alternatives are what a task may take instead of Resources.
	Alternatives []map[string]int64 `json:"alternatives,omitempty"`
	Secrets      []string           `json:"secrets,omitempty"`
	Uses         []string           `json:"uses,omitempty"` // limits
	Workers      uint32             `json:"workers"`
	AtOnce       uint64             `json:"at_once"`
	Reason       string             `json:"reason,omitempty"` // why no worker fits, or which quota is too low
}

// PlanBound is a time that the job takes at least for a single reason.
type PlanBound struct {
	Code string `json:"code"`
	Name string `json:"name,omitempty"`
	PlanRange
}

// PlanPath is a chain of tasks of which each waits for the one before.
type PlanPath struct {
	PlanRange

	Tasks []PlanStep `json:"tasks"`
}

// PlanStep is a task or an array of a path. Samples is how many run times its range is
// from; 0 = the job file expects it.
type PlanStep struct {
	ID string `json:"id"`
	PlanRange
	Samples uint32 `json:"samples"`
}

// PlanChange is a difference from the last job of the same name.
type PlanChange struct {
	ID     string   `json:"id,omitempty"` // empty = of the job itself
	Kind   string   `json:"kind"`
	Fields []string `json:"fields,omitempty"`
}

// NewJobPlan converts what the cluster knows about a plan. The caller adds what follows
// from the job file: name, tasks, levels, critical path, slot time and unknown tasks.
func NewJobPlan(r *dtaskv1.PlanResponse) JobPlan {
	p := JobPlan{
		Workers: r.GetWorkers(), Slots: r.GetSlots(), SlotsInUse: r.GetSlotsInUse(), Runs: r.GetRuns(),
		Classes: list(r.GetClasses(), newPlanClass), Bounds: list(r.GetBounds(), newPlanBound), Makespan: newPlanRange(r.GetMakespan()),
		Unknown: []string{}, LastJob: r.GetLastJob(), ChangesTotal: r.GetChangesTotal(),
		Changes: list(r.GetChanges(), func(c *dtaskv1.PlanChange) PlanChange {
			return PlanChange{ID: c.GetTask(), Kind: c.GetKind(), Fields: c.GetFields()}
		}),
	}
	p.CriticalPath.Tasks = []PlanStep{}
	return p
}

func newPlanRange(t *dtaskv1.PlanTime) PlanRange {
	return NewPlanRange(t.GetLowMs(), t.GetHighMs(), t.GetBounded())
}

func newPlanClass(c *dtaskv1.PlanClass) PlanClass {
	var alternatives []map[string]int64
	for _, other := range c.GetAlternatives() {
		alternatives = append(alternatives, other.GetResources())
	}
	return PlanClass{
		Alternatives: alternatives,
		ID:           c.GetTask(), Tasks: c.GetTasks(), Type: c.GetType(), Require: c.GetRequire(), Resources: c.GetResources(), Secrets: c.GetSecrets(), Uses: c.GetUses(),
		Workers: c.GetWorkers(), AtOnce: c.GetAtOnce(), Reason: c.GetReason(),
	}
}

func newPlanBound(b *dtaskv1.PlanBound) PlanBound {
	return PlanBound{Code: b.GetCode(), Name: b.GetName(), PlanRange: newPlanRange(b.GetTime())}
}
