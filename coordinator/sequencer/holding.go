package sequencer

import (
	"cmp"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// moment is a time by the monotonic clock of the term, in nanoseconds since
// Sequencer.origin. 0 means never. There are some for each attempt that is held,
// and a time.Time is three times as long.
type moment int64

// moment gives a time of this process's own clock as one of the term.
func (s *Sequencer) moment(t time.Time) moment { return moment(t.Sub(s.origin)) }

// since is how long before m another moment was.
func (m moment) since(before moment) time.Duration { return time.Duration(m - before) }

// held is an attempt that was given to a worker and whose outcome has not come.
type held struct {
	fsm.AttemptRef

	number  uint64 // of the assignments to its worker; 0: from before this term
	given   moment
	began   moment // heard to have begun
	beat    moment // last progress
	drained moment // asked to end because of a drain
	class   scheduler.ClassID
	asked   bool // its worker was asked to give it back
	stopped bool // ended from here; the worker was told
	rebuilt bool // known from the state only: another process of the worker may have it
}

// fewHeld is up to how many attempts are found by looking at all of them.
const fewHeld = 8

// holdings are the attempts that one worker holds: a list without gaps, in no
// order that means anything, and beside it where in the list each attempt is.
// Both keep the room that they once took, which is bounded by the worker's slots:
// an attempt that comes or goes allocates nothing.
type holdings struct {
	list []held
	// index places an attempt at its hash or the next free place after it (linear
	// probing). It holds positions in list plus one; 0 is a free place. Its length
	// is a power of two, at least twice that of list; nil while few are held.
	index []uint32
}

func (h *holdings) len() int { return len(h.list) }

// find gives an attempt, nil if it is not held. It stays where it is until the
// next add or remove.
func (h *holdings) find(a fsm.AttemptRef) *held {
	if at := h.at(a); at >= 0 {
		return &h.list[at]
	}
	return nil
}

// at is the position of an attempt in the list, or -1.
func (h *holdings) at(a fsm.AttemptRef) int {
	if h.index == nil {
		return slices.IndexFunc(h.list, func(x held) bool { return x.AttemptRef == a })
	}
	return int(h.index[h.place(a)]) - 1
}

// place is where in the index an attempt is, or would be.
func (h *holdings) place(a fsm.AttemptRef) int {
	mask := len(h.index) - 1
	p := h.home(a)
	for h.index[p] != 0 && h.list[h.index[p]-1].AttemptRef != a {
		p = (p + 1) & mask
	}
	return p
}

// home is the place in the index that an attempt has unless it is taken.
// Neighbours of a job get places far from each other (Fibonacci hashing, D. Knuth).
func (h *holdings) home(a fsm.AttemptRef) int {
	const golden = 0x9e3779b97f4a7c15
	x := (uint64(a.Job)<<20 ^ uint64(a.Attempt)) * golden
	x = (x ^ uint64(a.Index)) * golden
	return int(x>>32) & (len(h.index) - 1) //nolint:gosec // 32 bits
}

// add takes in an attempt, in the place of the same one if it is there.
func (h *holdings) add(x held) {
	if old := h.find(x.AttemptRef); old != nil {
		*old = x
		return
	}
	h.list = append(h.list, x)
	switch {
	case h.index == nil && len(h.list) <= fewHeld:
	case 2*len(h.list) > len(h.index):
		h.grow()
	default:
		h.index[h.place(x.AttemptRef)] = uint32(len(h.list)) //nolint:gosec // far fewer
	}
}

// grow makes the index anew, twice as long.
func (h *holdings) grow() {
	h.index = make([]uint32, max(8*fewHeld, 2*len(h.index)))
	for i := range h.list {
		h.index[h.place(h.list[i].AttemptRef)] = uint32(i + 1) //nolint:gosec // far fewer
	}
}

// remove takes out an attempt and gives it; ok is false if it is not held. The last
// one of the list takes its position.
func (h *holdings) remove(a fsm.AttemptRef) (x held, ok bool) {
	at := h.at(a)
	if at < 0 {
		return held{}, false
	}
	x = h.list[at]
	last := len(h.list) - 1
	if h.index != nil {
		h.vacate(h.place(a))
		if at != last {
			h.index[h.place(h.list[last].AttemptRef)] = uint32(at + 1) //nolint:gosec // far fewer
		}
	}
	h.list[at] = h.list[last]
	h.list = h.list[:last]
	return x, true
}

// vacate frees a place in the index. What comes after it without a gap moves up
// unless it would come before its home.
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

// sorted gives the names of all attempts in order: what is written into the log
// follows from what is held.
func (h *holdings) sorted() []fsm.AttemptRef {
	list := make([]fsm.AttemptRef, len(h.list))
	for i := range h.list {
		list[i] = h.list[i].AttemptRef
	}
	slices.SortFunc(list, compareAttempts)
	return list
}

func compareAttempts(a, b fsm.AttemptRef) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Attempt, b.Attempt))
}
