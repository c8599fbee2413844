package scheduler

// MaxSlots is the largest number of slots of one worker. A larger number counts
// as MaxSlots.
const MaxSlots = 1<<16 - 1

// MaxAmount is the largest amount of a resource on a worker, in thousandths of
// its unit. A larger amount counts as MaxAmount. A demand above it fits
// nowhere.
const MaxAmount = 1 << 60

// A TaskRef names a task: the number of its job and its index in the job.
type TaskRef struct {
	Job   uint64
	Index uint32
}

// A WorkerID is the number of a worker in the state machine. Zero is unset.
type WorkerID uint32

// A Priority orders the ready tasks of a queue: no task of it is assigned while one
// of a higher priority could be, except for its oldest one at every 16th start. The
// zero value is unset and invalid.
type Priority uint8

// The priorities, lowest first.
const (
	Low Priority = iota + 1
	Normal
	High
	Urgent
)

var priorityNames = [...]string{"unset", "low", "normal", "high", "urgent"}

// String returns the name that users write, or "unset".
func (p Priority) String() string {
	if !p.Valid() {
		p = 0
	}
	return priorityNames[p]
}

// Valid reports whether p is one of the four priorities.
func (p Priority) Valid() bool { return p >= Low && p <= Urgent }

// orNormal returns p, or Normal if it is invalid.
func (p Priority) orNormal() Priority {
	if !p.Valid() {
		return Normal
	}
	return p
}

// A Quantity is an amount of a countable resource: cpu, memory, gpu, disk or a
// name that the user chose.
type Quantity struct {
	Name string
	// Amount is in thousandths of the resource's unit: half a CPU is 500. Zero
	// and negative amounts count as none.
	Amount int64
}

// A Label is declared by a worker, or required by a task.
type Label struct {
	Name  string
	Value string
}

// A Demand is what a task requires of a worker beyond one free slot. The order
// of its lists has no meaning.
type Demand struct {
	// Resources are taken while an attempt runs. Amounts of one name add up.
	Resources []Quantity
	// Alternatives are lists of which one may be taken instead of Resources: the first that
	// fits when the task starts, Resources before all. Such a task is never prefetched.
	Alternatives [][]Quantity
	// Labels must all be on the worker.
	Labels []Label
	// Rules are further conditions on labels, all of which the worker must fulfill. A label
	// has at most one: explanations rely on it.
	Rules []LabelRule
	// Prefer are conditions on labels. A worker that fulfills all of them is chosen before
	// others that fit.
	Prefer []LabelRule
	// Place is how one of the workers that fit is chosen.
	Place Strategy
	// Affinity is a key; empty: none. Tasks with the same key run on the same worker, as far
	// as that leaves no others idle: see affinity.go.
	Affinity string
	// Type is the type of task that the worker must handle; empty: none.
	Type string
	// Namespace is the one of the task, which the worker must serve.
	Namespace string
	// Queue and Owner name the flow of the task: see SetQueue. Owners of different
	// namespaces are different.
	Queue, Owner string
	// NoPrefetch excludes prefetching: the task is assigned only to a free
	// slot, or ahead of attempts of a lower priority that wait for one. A task
	// that takes resources is never prefetched either.
	NoPrefetch bool
	// Limit is the maximum number of concurrent attempts of the demand's group,
	// on all workers together; 0 = unlimited. Equal demands of one group share
	// it.
	Limit uint32
	Group TaskRef
	// Preemptible: the caller names attempts of such tasks that may end for an urgent one: see
	// Scheduler.Yields.
	Preemptible bool
	// Uses are named limits that each attempt counts towards: see SetNamedLimit. Such a
	// task is never prefetched.
	Uses []string
}

// A Capacity is what a worker offers.
type Capacity struct {
	// Slots is the maximum number of concurrent attempts, 0 to MaxSlots. A
	// worker with 0 slots gets no tasks.
	Slots int
	// Resources are shared by its attempts. A resource that is not listed is
	// missing.
	Resources []Quantity
	Labels    []Label
	// Types are the types of tasks that the worker handles; none: all.
	Types []string
	// Namespaces are those whose tasks the worker may run; none: all.
	Namespaces []string
	// Reserved: the worker gets only tasks that require one of its labels. Labels whose names
	// end with a colon, those of secrets, don't count.
	Reserved bool
}

// A ClassID stands for a Demand: see Scheduler.Class. It is valid for the
// Scheduler that returned it. Zero is the class of tasks that need one slot and
// nothing else, in the namespace and the queue with the empty name, and without owner.
type ClassID uint32

// An Assignment is the decision to run a task on a worker. Its slot and
// resources are taken until Release. With more than four fields, the compiler would copy it
// through memory at each return, which takes some 40 ns for each task.
type Assignment struct {
	Task   TaskRef
	Worker WorkerID
	// Class is that of the task, or the one of its alternatives that it takes: see
	// AlternativeOf.
	Class    ClassID
	Priority Priority
}
