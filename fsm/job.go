package fsm

import (
	"sort"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// job is one job: its submitted form, which is shared and immutable, and its
// state.
type job struct {
	own *ownership

	id          JobID
	key         string
	headerBytes []byte
	header      *dtaskv1.JobHeader // never changed
	total       uint32
	chunks      []*Chunk
	succ        *successors // from the seal on
	sum         uint32      // CRC-32C over the chunks so far
	digest      [16]byte

	arrays  []arrayRun  // ascending
	ends    []unitCount // of each array: how its tasks ended; follows from the records
	endsOwn *ownership

	ordinary      uint32 // tasks other than cleanup tasks, which follow them
	state         JobState
	outcome       JobState         // of the ordinary tasks; 0 while any of them is open
	stopping      bool             // no new attempt of an ordinary task starts
	err           string           // why it failed or was cancelled
	version       uint32           // starts at 1; each update adds 1
	priority      dtaskv1.Priority // set by an update of the whole job; 0 = the header's
	submitted     int64            // ms; entry that sealed it
	started       int64            // ms; first assignment
	ended         int64            // ms
	revived       int64            // ms; last revival; 0 = never
	retries       uint64           // failed and lost attempts that are followed by another
	requeues      uint64           // attempts that are followed by another although none failed or was lost
	counts        [numStates]uint32
	cleanupCounts [numStates]uint32 // the cleanup tasks of counts
	running       uint32            // tasks that record.runs is true for
	checkpoints   uint32            // checkpoints of its tasks
	needEnds      []JobState        // by need of the header: how that job ended; 0 = it had not; shared: replaced, never changed
	gate          gate              // keeps its tasks from being ready
	neededBy      []JobID           // the jobs whose needs this one's end may change, and some others; unsorted, with duplicates

	changed      uint64 // log index; this and the next three are only in memory, see changes.go
	sealedAt     uint64 // when it was sealed and became visible
	stateChanged uint64 // when it last ended or was revived
	changesKnown uint64 // changes up to this index are not known one by one

	records records
	notes   notes
	updates *updates // nil: none
}

// successors are the edges of a job from each task to its dependents, as
// compressed sparse rows: the dependents of unit i (see job.unit) are
// to[from[i]:from[i+1]]. The first task of an array stands for all of it, on
// both ends.
type successors struct {
	from       []uint32
	to         []uint32
	conditions []Condition // of the edges in to; nil if all are WhenCompleted
	outlive    []bool      // of each unit, if there are conditions: see job.outlivesStop
}

// dependents are what depends on a unit: the task, or the first task of the
// array, and the condition of each edge; nil if all are WhenCompleted.
type dependents struct {
	heads      []uint32
	conditions []Condition
}

func (d dependents) condition(k int) Condition {
	if d.conditions == nil {
		return WhenCompleted
	}
	return d.conditions[k]
}

func (s *successors) of(i uint32) dependents {
	d := dependents{heads: s.to[s.from[i]:s.from[i+1]]}
	if s.conditions != nil {
		d.conditions = s.conditions[s.from[i]:s.from[i+1]]
	}
	return d
}

// makeSuccessors reverses the dependencies of all chunks; nil if the job
// has none. It is a counting sort: one pass over all edges for the lengths, one
// to store them.
func (j *job) makeSuccessors() *successors {
	edges, units, conditions := uint32(0), j.total, false
	for _, c := range j.chunks {
		edges += c.edges
		conditions = conditions || c.conditions
	}
	if edges == 0 {
		return nil
	}
	if len(j.arrays) > 0 {
		units = j.unit(j.total-1) + 1
	}
	s := &successors{from: make([]uint32, units+2), to: make([]uint32, edges)}
	if conditions {
		s.conditions, s.outlive = make([]Condition, edges), make([]bool, units+1)
	}
	each := func(f func(self, dep uint32, c Condition)) {
		for _, c := range j.chunks {
			switch {
			case c.array != nil:
				for k, dep := range c.array.Deps {
					f(c.First, j.unit(dep), c.array.condition(k))
				}
			case !c.ofArray:
				for i := range c.off {
					_, deps := c.edgesOf(uint32(i)) //nolint:gosec // ≤ 1,000,000
					deps.each(func(dep uint32, when Condition) { f(deps.self, j.unit(dep), when) })
				}
			}
		}
	}
	each(func(_, dep uint32, _ Condition) { s.from[dep+2]++ })
	for i := 2; i < len(s.from); i++ {
		s.from[i] += s.from[i-1]
	}
	each(func(self, dep uint32, when Condition) {
		s.to[s.from[dep+1]] = self
		if conditions {
			s.conditions[s.from[dep+1]] = when
			unit := j.unit(self)
			s.outlive[unit] = s.outlive[unit] || s.outlive[dep] || when == WhenEnded || when == WhenFailed
		}
		s.from[dep+1]++
	})
	s.from = s.from[:units+1]
	return s
}

// chunk returns the chunk of a task that is not in an array.
func (j *job) chunk(i uint32) *Chunk {
	if len(j.chunks) == 1 {
		return j.chunks[0]
	}
	k := sort.Search(len(j.chunks), func(k int) bool { return j.chunks[k].First > i }) - 1
	return j.chunks[k]
}

// task returns the submitted form of a task.
func (j *job) task(i uint32) task {
	if at, within := j.arrayAt(i); within {
		run := j.arrays[at]
		return ofArray(j.chunks[run.chunk].array, run.first)
	}
	c := j.chunk(i)
	return c.at(i - c.First)
}

// submittedPolicy is the policy number that a task was submitted with.
func (j *job) submittedPolicy(i uint32) uint32 {
	if at, within := j.arrayAt(i); within {
		return j.chunks[j.arrays[at].chunk].array.Policy
	}
	c := j.chunk(i)
	return c.policy(i - c.First)
}

func (j *job) policy(i uint32) *dtaskv1.TaskPolicy { return j.policyOf(j.policyNumber(i)) }

// name is the task id that the user chose, or the array's id with an index.
func (j *job) name(i uint32) string {
	if a, k, ok := j.arrayOf(i); ok {
		return a.taskName(k)
	}
	return string(j.task(i).name)
}

// isCleanup reports whether a task is a cleanup task: it waits until all
// ordinary tasks have ended, with any outcome.
func (j *job) isCleanup(i uint32) bool { return i >= j.ordinary }

// open is the number of tasks that have not ended.
func (j *job) open() uint32 { return openOf(&j.counts) }

// openOrdinary is the number of open ordinary tasks.
func (j *job) openOrdinary() uint32 { return j.open() - openOf(&j.cleanupCounts) }

// failedOrdinary is the number of ordinary tasks that failed permanently.
func (j *job) failedOrdinary() uint32 { return failedOf(&j.counts) - failedOf(&j.cleanupCounts) }

// toleratedFailures is how many ordinary tasks may fail permanently without
// failing the job.
func (j *job) toleratedFailures() uint32 { return j.header.GetMaxFailures() }

// toleratesFailures reports whether the job tolerates the failures so far.
func (j *job) toleratesFailures() bool { return j.failedOrdinary() <= j.toleratedFailures() }

func openOf(counts *[numStates]uint32) uint32 {
	return counts[Blocked] + counts[Scheduled] + counts[Pending] + counts[Assigned]
}

func failedOf(counts *[numStates]uint32) uint32 { return counts[Failed] + counts[Dead] + counts[Lost] }

// include counts the ordinary tasks of the next chunk and adds the array that
// it starts. It returns false, and leaves the job unusable, if a task has no
// policy or no name, if an ordinary task follows a cleanup task, if a cleanup
// task depends on an ordinary one, or if the parts of an array don't fit
// together.
func (j *job) include(c *Chunk) bool {
	if c.ofArray {
		return j.includeArray(c)
	}
	if _, unfinished := j.unfinishedArray(); unfinished {
		return false
	}
	if c.unnamed {
		return false
	}
	for i := range c.off {
		policy, deps := c.edgesOf(uint32(i)) //nolint:gosec // ≤ 1,000,000
		if int(policy) >= len(j.header.GetPolicies()) {
			return false
		}
		final := j.header.GetPolicies()[policy].GetFinally()
		fine := true
		if final || len(j.arrays) > 0 {
			deps.each(func(dep uint32, _ Condition) { fine = fine && (!final || dep >= j.ordinary) && j.head(dep) == dep })
		}
		if !fine || !final && deps.self != j.ordinary {
			return false
		}
		if !final {
			j.ordinary++
		}
	}
	return true
}
