package sequencer

import (
	"container/heap"
	"time"

	"github.com/dtask/dtask/fsm"
)

type timerKind uint8

const (
	timerDue      timerKind = iota + 1 // a scheduled task becomes ready
	timerQueue                         // a ready task has waited for too long
	timerDeadline                      // a job has run for too long
	timerLease                         // an at-most-once attempt of a lost worker is over
	timerUpload                        // a job that nobody uploads any more
)

// timer is something that happens at a moment unless it has become pointless
// by then: nothing is ever taken out of the heap before its time.
type timer struct {
	at      time.Time
	kind    timerKind
	task    fsm.TaskRef
	attempt uint32
	due     int64 // ms; of a task that waits for a time, or waited for one: the time that the timer is for
}

// timers is a heap by time.
type timers struct{ h timerHeap }

func (t *timers) add(x timer) { heap.Push(&t.h, x) }

// next is when the first timer fires; ok is false if there is none.
func (t *timers) next() (at time.Time, ok bool) {
	if len(t.h) == 0 {
		return time.Time{}, false
	}
	return t.h[0].at, true
}

// due takes out the first timer if its time has come.
func (t *timers) due(now time.Time) (timer, bool) {
	if len(t.h) == 0 || t.h[0].at.After(now) {
		return timer{}, false
	}
	return heap.Pop(&t.h).(timer), true //nolint:forcetypeassert,errcheck // the heap holds nothing else
}

type timerHeap []timer

func (h *timerHeap) Len() int           { return len(*h) }
func (h *timerHeap) Less(i, j int) bool { return (*h)[i].at.Before((*h)[j].at) }
func (h *timerHeap) Swap(i, j int)      { (*h)[i], (*h)[j] = (*h)[j], (*h)[i] }
func (h *timerHeap) Push(x any)         { *h = append(*h, x.(timer)) } //nolint:forcetypeassert,errcheck // add is the only caller
func (h *timerHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
