package fsm

import (
	"sort"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// job is one job: what was submitted, shared and immutable, and what changes.
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

	state     JobState
	stopping  bool   // no new attempt starts
	err       string // why it failed or was cancelled
	submitted int64  // ms; entry that sealed it
	started   int64  // ms; first assignment
	ended     int64  // ms
	revived   int64  // ms; when it last went on after it had ended or stopped; 0 = never
	retries   uint64 // attempts after a task's first
	recovered uint64 // failures and losses after which a task was tried again
	counts    [numStates]uint32

	records records
	notes   notes
}

// successors are the edges of a job from each task to those that depend on it,
// as compressed sparse rows: those of task i are to[from[i]:from[i+1]].
type successors struct {
	from []uint32
	to   []uint32
}

func (s *successors) of(i uint32) []uint32 {
	if s == nil {
		return nil
	}
	return s.to[s.from[i]:s.from[i+1]]
}

// makeSuccessors turns the dependencies of all chunks around; nil if there are
// none. Counting sort: once over all edges for the lengths, once to place them.
func makeSuccessors(chunks []*Chunk, total uint32) *successors {
	edges := uint32(0)
	for _, c := range chunks {
		edges += c.edges
	}
	if edges == 0 {
		return nil
	}
	s := &successors{from: make([]uint32, total+2), to: make([]uint32, edges)}
	each := func(f func(self, dep uint32)) {
		for _, c := range chunks {
			for i := range c.off {
				self := c.First + uint32(i)                                      //nolint:gosec // ≤ 1,000,000
				c.at(uint32(i)).eachDep(self, func(dep uint32) { f(self, dep) }) //nolint:gosec // same
			}
		}
	}
	each(func(_, dep uint32) { s.from[dep+2]++ })
	for i := 2; i < len(s.from); i++ {
		s.from[i] += s.from[i-1]
	}
	each(func(self, dep uint32) {
		s.to[s.from[dep+1]] = self
		s.from[dep+1]++
	})
	s.from = s.from[:total+1]
	return s
}

// task finds the submitted part of a task.
func (j *job) task(i uint32) task {
	k := sort.Search(len(j.chunks), func(k int) bool { return j.chunks[k].First > i }) - 1
	c := j.chunks[k]
	return c.at(i - c.First)
}

func (j *job) policy(i uint32) *dtaskv1.TaskPolicy { return j.header.GetPolicies()[j.task(i).policy] }

// name is the id that the user gave to a task.
func (j *job) name(i uint32) string { return string(j.task(i).name) }

// open is the number of tasks that have not ended.
func (j *job) open() uint32 {
	return j.counts[Blocked] + j.counts[Scheduled] + j.counts[Pending] + j.counts[Assigned]
}
