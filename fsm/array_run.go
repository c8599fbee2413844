package fsm

import (
	"slices"
	"sort"
	"strings"
)

// arrayRun is the position of an array among the tasks of its job.
type arrayRun struct {
	first, count uint32
	chunk        uint32 // position of the chunk with its record
	skip         uint32 // tasks of arrays before it, beyond the first of each
}

func (a arrayRun) end() uint32 { return a.first + a.count }

// arrayAt returns the position in the job's list of the array that a task is
// in, or of the last one before it; -1 without one.
func (j *job) arrayAt(i uint32) (at int, within bool) {
	if len(j.arrays) == 0 {
		return -1, false
	}
	at = sort.Search(len(j.arrays), func(k int) bool { return j.arrays[k].first > i }) - 1
	return at, at >= 0 && i < j.arrays[at].end()
}

// arrayOf returns the record of the array that a task is in, and the task's
// position in it.
func (j *job) arrayOf(i uint32) (a *Array, k uint32, ok bool) {
	at, within := j.arrayAt(i)
	if !within {
		return nil, 0, false
	}
	run := j.arrays[at]
	return j.chunks[run.chunk].array, i - run.first, true
}

// head returns the task by which others depend on this one: the first task of
// its array.
func (j *job) head(i uint32) uint32 {
	if at, within := j.arrayAt(i); within {
		return j.arrays[at].first
	}
	return i
}

// span is the number of tasks that a head stands for.
func (j *job) span(head uint32) uint32 {
	if at, within := j.arrayAt(head); within {
		return j.arrays[at].count
	}
	return 1
}

// unit numbers what can be depended on, listed tasks and whole arrays, in
// order.
func (j *job) unit(i uint32) uint32 {
	at, within := j.arrayAt(i)
	if at < 0 {
		return i
	}
	a := j.arrays[at]
	if within {
		return a.first - a.skip
	}
	return i - a.skip - (a.count - 1)
}

// dependents returns what depends on a task or on its array.
func (j *job) dependents(i uint32) dependents {
	if j.succ == nil {
		return dependents{}
	}
	return j.succ.of(j.unit(i))
}

// next is the index of the first task that is not in a chunk.
func (j *job) next() uint32 {
	if len(j.chunks) == 0 {
		return 0
	}
	last := j.chunks[len(j.chunks)-1]
	return last.First + uint32(last.Len()) //nolint:gosec // ≤ total
}

// unfinishedArray returns the array whose parts are incomplete; ok is
// false if all are complete.
func (j *job) unfinishedArray() (run arrayRun, ok bool) {
	if len(j.arrays) == 0 {
		return arrayRun{}, false
	}
	run = j.arrays[len(j.arrays)-1]
	return run, run.end() > j.next()
}

// includeArray is include for a chunk of an array.
func (j *job) includeArray(c *Chunk) bool {
	n := uint32(c.Len()) //nolint:gosec // ≤ maxArrayTasks
	run, unfinished := j.unfinishedArray()
	if c.part > 0 {
		if !unfinished || int(c.part) != len(j.chunks)-int(run.chunk) {
			return false
		}
		a := j.chunks[run.chunk].array
		return c.size == a.Chunk && j.fits(run, a, c) && j.ordinaryRun(a, c.First, n)
	}
	a := c.array
	if unfinished || int(a.Policy) >= len(j.header.GetPolicies()) || tooLong(a.Name) {
		return false
	}
	for _, dep := range a.Deps {
		if j.head(dep) != dep || j.header.GetPolicies()[a.Policy].GetFinally() && dep < j.ordinary {
			return false
		}
	}
	fresh := arrayRun{first: c.First, count: a.Tasks(), chunk: uint32(len(j.chunks))} //nolint:gosec // few
	if len(j.arrays) > 0 {
		last := j.arrays[len(j.arrays)-1]
		fresh.skip = last.skip + last.count - 1
	}
	if !j.fits(fresh, a, c) || !j.ordinaryRun(a, c.First, n) {
		return false
	}
	j.arrays = append(j.arrays, fresh)
	j.ends = append(j.ends, unitCount{open: fresh.count})
	return true
}

// fits reports whether a part stays within its array and, unless it is the
// last one, ends with a whole task.
func (j *job) fits(run arrayRun, a *Array, c *Chunk) bool {
	if len(a.Ranges) > 0 {
		return c.part == 0
	}
	end := uint64(c.First-run.first)*uint64(a.Chunk) + uint64(len(c.off))
	return end == uint64(a.Items) || end < uint64(a.Items) && len(c.off)%int(a.Chunk) == 0
}

// ordinaryRun counts ordinary tasks. It returns false if they follow a
// cleanup task.
func (j *job) ordinaryRun(a *Array, first, n uint32) bool {
	switch {
	case j.header.GetPolicies()[a.Policy].GetFinally():
		return true
	case first != j.ordinary:
		return false
	}
	j.ordinary += n
	return true
}

// writeEnds gives, for changing, how the tasks of each array ended.
func (j *job) writeEnds(own *ownership) []unitCount {
	if j.endsOwn != own {
		j.ends, j.endsOwn = slices.Clone(j.ends), own
	}
	return j.ends
}

// countEnds counts how the tasks of each array ended.
func (j *job) countEnds() {
	for at, a := range j.arrays {
		c := unitCount{open: a.end() - min(a.end(), max(a.first, j.records.n))}
		for i := a.first; i < min(a.end(), j.records.n); i++ {
			r := j.records.at(i)
			c.move(nil, c.of(r.state, r.cause), 1)
		}
		j.ends[at] = c
	}
}

// findInArray returns a task of an array by its id.
func (j *job) findInArray(name string) (uint32, bool) {
	if !strings.HasSuffix(name, "]") {
		return 0, false
	}
	for _, run := range j.arrays {
		if k, ok := j.chunks[run.chunk].array.findName(name); ok {
			return run.first + k, true
		}
	}
	return 0, false
}

// ArrayTask is a task of an array.
type ArrayTask struct {
	*Array        // shared: never change it
	First  uint32 // index of the array's first task in its job
	Count  uint32 // tasks of the array
	K      uint32 // position of the task in the array
	from   *job
}

// ArrayTask returns the array of a task; ok is false for a listed task.
func (s *State) ArrayTask(t TaskRef) (ArrayTask, bool) {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return ArrayTask{}, false
	}
	at, within := j.arrayAt(t.Index)
	if !within {
		return ArrayTask{}, false
	}
	run := j.arrays[at]
	return ArrayTask{Array: j.chunks[run.chunk].array, First: run.first, Count: run.count, K: t.Index - run.first, from: j}, true
}

// Each calls f with the indexes and encoded items of a task, in order. In an
// array of ranges the item is nil. Items are shared.
func (t ArrayTask) Each(f func(index uint32, item []byte)) {
	first, end := t.of(t.K)
	var c *Chunk
	skip := uint32(0) // items of the array before those of c
	if len(t.Ranges) == 0 {
		k := sort.Search(len(t.from.chunks), func(k int) bool { return t.from.chunks[k].First > t.First+t.K }) - 1
		c = t.from.chunks[k]
		skip = (c.First - t.First) * t.Chunk
	}
	for i := first; i < end; i++ {
		if c == nil {
			f(t.Index(i), nil)
		} else {
			f(i, c.item(i-skip))
		}
	}
}

// Arrays returns the arrays of a job in order, each as its first task.
func (s *State) Arrays(id JobID) []ArrayTask {
	j := s.sealedJob(id)
	if j == nil {
		return nil
	}
	list := make([]ArrayTask, 0, len(j.arrays))
	for _, run := range j.arrays {
		list = append(list, ArrayTask{Array: j.chunks[run.chunk].array, First: run.first, Count: run.count, from: j})
	}
	return list
}
