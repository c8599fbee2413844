package scheduler

// MaxSlots is the largest number of slots of one worker; a larger one counts
// as this.
const MaxSlots = 1<<16 - 1

// MaxAmount is the largest amount of a resource that a worker can have, in
// thousandths of its unit; a larger one counts as this. A demand above it fits
// nowhere.
const MaxAmount = 1 << 60

// A TaskRef names a task: the number of its job and its index in the job.
type TaskRef struct {
	Job   uint64
	Index uint32
}

// A WorkerID is the number that the state machine gave to a worker. Zero is
// unset: no worker.
type WorkerID uint32

// A Priority orders ready tasks: no task is assigned while one of a higher
// priority could be. The zero value is unset and not valid.
type Priority uint8

// The priorities, lowest first.
const (
	Low Priority = iota + 1
	Normal
	High
	Urgent
)

// String returns the name that users write, or "unset".
func (p Priority) String() string {
	switch p {
	case Low:
		return "low"
	case Normal:
		return "normal"
	case High:
		return "high"
	case Urgent:
		return "urgent"
	default:
		return "unset"
	}
}

// Valid reports whether p is one of the four priorities.
func (p Priority) Valid() bool { return p >= Low && p <= Urgent }

// A Quantity is an amount of a countable resource: cpu, memory, gpu, disk or a
// name of the user's own.
type Quantity struct {
	Name string
	// Amount is in thousandths of the resource's unit, so that half a CPU is
	// 500. Zero and less count as nothing.
	Amount int64
}

// A Label is what a worker says of itself, or what a task requires of it.
type Label struct {
	Name  string
	Value string
}

// A Demand is what a task needs of a worker beyond one free slot. Two demands
// are equal if they ask for the same, in any order.
type Demand struct {
	// Resources are taken while an attempt runs. Amounts under one name add up.
	Resources []Quantity
	// Labels must all be on the worker.
	Labels []Label
	// Prompt tasks begin as soon as they are assigned: they are never given to a
	// worker ahead of a free slot. Nor is a task that takes resources.
	NoPrefetch bool
	// Limit is how many attempts of the demand's group may be held at a time, on
	// all workers together; 0 = any number. Equal demands of one group share it.
	Limit uint32
	Group TaskRef
}

// A Capacity is what a worker offers.
type Capacity struct {
	// Slots is how many attempts it runs at a time, 0 to MaxSlots; with 0 it
	// takes nothing.
	Slots int
	// Resources are shared by its attempts. One that is not listed is not there.
	Resources []Quantity
	Labels    []Label
}

// A ClassID stands for a Demand: see Scheduler.Class. It holds for the
// Scheduler that gave it. Zero is the class of tasks that need one slot and
// nothing else.
type ClassID uint32

// An Assignment is the decision to run a task on a worker. Its slot and
// resources are taken until Release.
type Assignment struct {
	Task     TaskRef
	Worker   WorkerID
	Class    ClassID
	Priority Priority
}
