package sequencer

import (
	"cmp"
	"slices"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// held is an attempt that was assigned to a worker and whose outcome is not
// known.
type held struct {
	fsm.AttemptRef

	number      uint64 // of the assignments to its worker; 0: assigned before this term
	assigned    monoTime
	started     monoTime // when the worker reported its start
	progressed  monoTime // when the worker last reported progress
	class       scheduler.ClassID
	priority    scheduler.Priority // when it was assigned
	stealAsked  bool               // the worker was asked to release it
	stopped     bool               // ended by the leader; a stop was sent
	yields      bool               // it may end for an urgent task: see workerTable.mayYield
	ends        bool               // the worker was asked to end it: see holdings.endings
	preempted   bool               // it was asked for an urgent task
	observed    bool               // observations has it although it may not have started
	unconfirmed bool               // known from the state only: another process of the worker may have it
}

// An ending is when and why a worker was asked to end an attempt and keep its task for another worker.
type ending struct {
	since monoTime
	by    fsm.JobID // the job of the urgent task that gets its place; 0: for a drain
}

// maxScanned is the number of attempts up to which find scans the list.
const maxScanned = 8

// holdings are the attempts that one worker holds: a list in arbitrary order,
// and an index into it. Both keep their memory, which the worker's slots bound:
// an attempt that comes or goes allocates nothing.
type holdings struct {
	list []held
	// index is a hash table with linear probing. It holds positions in list
	// plus one; 0 is an empty cell. Its length is a power of two and at least
	// twice that of list. It is nil while the list is short.
	index []uint32
	// endings has the attempts that end for a drain or an urgent task. They are few, and stay out of
	// held to keep it short: the leader touches several of these per task, mostly outside the
	// processor's cache.
	endings map[fsm.AttemptRef]ending
}

func (h *holdings) len() int { return len(h.list) }

// end notes that the worker was asked to end an attempt.
func (h *holdings) end(x *held, e ending) {
	if h.endings == nil {
		h.endings = make(map[fsm.AttemptRef]ending)
	}
	h.endings[x.AttemptRef] = e
	x.ends, x.preempted = true, e.by != 0
}

// resume undoes end.
func (h *holdings) resume(x *held) {
	if x.ends {
		delete(h.endings, x.AttemptRef)
		x.ends, x.preempted = false, false
	}
}

// find returns an attempt, or nil. The pointer is valid until the next add or
// remove.
func (h *holdings) find(a fsm.AttemptRef) *held {
	if at := h.at(a); at >= 0 {
		return &h.list[at]
	}
	return nil
}

// at returns the position of an attempt in the list, or -1.
func (h *holdings) at(a fsm.AttemptRef) int {
	if h.index == nil {
		return slices.IndexFunc(h.list, func(x held) bool { return x.AttemptRef == a })
	}
	return int(h.index[h.cell(a)]) - 1
}

// cell returns the cell of the index that has an attempt, or would get it.
func (h *holdings) cell(a fsm.AttemptRef) int {
	mask := len(h.index) - 1
	p := h.home(a)
	for h.index[p] != 0 && h.list[h.index[p]-1].AttemptRef != a {
		p = (p + 1) & mask
	}
	return p
}

// home returns the cell in which the search for an attempt starts. Fibonacci
// hashing (D. Knuth) puts neighbors of a job far from each other.
func (h *holdings) home(a fsm.AttemptRef) int {
	const golden = 0x9e3779b97f4a7c15
	x := (uint64(a.Job)<<20 ^ uint64(a.Attempt)) * golden
	x = (x ^ uint64(a.Index)) * golden
	return int(x>>32) & (len(h.index) - 1) //nolint:gosec // 32 bits
}

// add adds an attempt, or replaces an existing one, and returns it without any properties. The
// pointer is valid until the next add or remove. The caller sets the properties in place: copying
// a value that was just written in parts stalls the processor.
func (h *holdings) add(a fsm.AttemptRef) *held {
	if old := h.find(a); old != nil {
		h.resume(old)
		*old = held{AttemptRef: a}
		return old
	}
	h.list = append(h.list, held{AttemptRef: a})
	switch {
	case h.index == nil && len(h.list) <= maxScanned:
	case 2*len(h.list) > len(h.index):
		h.grow()
	default:
		h.index[h.cell(a)] = uint32(len(h.list)) //nolint:gosec // far fewer
	}
	return &h.list[len(h.list)-1]
}

// grow rebuilds the index at twice its length.
func (h *holdings) grow() {
	h.index = make([]uint32, max(8*maxScanned, 2*len(h.index)))
	for i := range h.list {
		h.index[h.cell(h.list[i].AttemptRef)] = uint32(i + 1) //nolint:gosec // far fewer
	}
}

// remove removes and returns an attempt; ok is false if it is not held. The
// last attempt of the list takes its position.
func (h *holdings) remove(a fsm.AttemptRef) (x held, ok bool) {
	at := h.at(a)
	if at < 0 {
		return held{}, false
	}
	x = h.list[at]
	if x.ends {
		delete(h.endings, a)
	}
	last := len(h.list) - 1
	if h.index != nil {
		h.vacate(h.cell(a))
		if at != last {
			h.index[h.cell(h.list[last].AttemptRef)] = uint32(at + 1) //nolint:gosec // far fewer
		}
	}
	h.list[at] = h.list[last]
	h.list = h.list[:last]
	return x, true
}

// vacate empties a cell of the index. The cells that follow without a gap move
// up unless that would put one before its home.
func (h *holdings) vacate(free int) {
	mask := len(h.index) - 1
	for p := (free + 1) & mask; h.index[p] != 0; p = (p + 1) & mask {
		home := h.home(h.list[h.index[p]-1].AttemptRef)
		if (p-home)&mask >= (p-free)&mask {
			h.index[free] = h.index[p]
			free = p
		}
	}
	h.index[free] = 0
}

// sorted returns the names of all attempts in order, so that the log entry made
// of them doesn't depend on the order of the list.
func (h *holdings) sorted() []fsm.AttemptRef {
	list := make([]fsm.AttemptRef, len(h.list))
	for i := range h.list {
		list[i] = h.list[i].AttemptRef
	}
	slices.SortFunc(list, compareAttempts)
	return list
}

// oldest returns the attempts that may run at a worker with a number of slots:
// those that it reported as started, and before it reports more, those that it
// received first, and those with the highest priority. A worker reports a start
// only after a while, and a new leader knows none that was reported before its
// term.
func (h *holdings) oldest(slots int) map[fsm.AttemptRef]bool {
	list := slices.Clone(h.list)
	waiting := func(x held) int {
		if x.started != 0 {
			return 0
		}
		return 1
	}
	received := func(x, y held) int {
		return cmp.Or(cmp.Compare(waiting(x), waiting(y)), cmp.Compare(x.number, y.number), compareAttempts(x.AttemptRef, y.AttemptRef))
	}
	urgent := func(x, y held) int {
		return cmp.Or(cmp.Compare(waiting(x), waiting(y)), cmp.Compare(y.priority, x.priority), received(x, y))
	}
	oldest := make(map[fsm.AttemptRef]bool, min(2*slots, len(list)))
	for _, order := range []func(x, y held) int{urgent, received} {
		slices.SortFunc(list, order)
		for i, x := range list {
			if x.started != 0 || i < slots {
				oldest[x.AttemptRef] = true
			}
		}
	}
	return oldest
}

func compareAttempts(a, b fsm.AttemptRef) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Attempt, b.Attempt))
}
