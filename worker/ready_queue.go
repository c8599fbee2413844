package worker

import (
	"cmp"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// readyQueue holds the attempts that wait for a slot: the highest priority
// first, and then in the order of their arrival.
type readyQueue struct {
	byPriority [dtaskv1.Priority_PRIORITY_URGENT + 1][]*attempt
	n          int
}

// push adds an attempt behind those of its priority.
func (q *readyQueue) push(a *attempt) {
	p := a.priority()
	q.byPriority[p] = append(q.byPriority[p], a)
	q.n++
}

// pushFirst adds an attempt ahead of those of its priority.
func (q *readyQueue) pushFirst(a *attempt) {
	p := a.priority()
	q.byPriority[p] = append([]*attempt{a}, q.byPriority[p]...)
	q.n++
}

// pop removes and returns the first attempt; nil if the queue is empty.
func (q *readyQueue) pop() *attempt {
	for p := len(q.byPriority) - 1; p >= 0; p-- {
		list := q.byPriority[p]
		if len(list) == 0 {
			continue
		}
		a := list[0]
		list[0] = nil // an ended attempt must not be kept by the queue
		if q.byPriority[p] = list[1:]; len(list) == 1 {
			q.byPriority[p] = nil
		}
		q.n--
		return a
	}
	return nil
}

func (q *readyQueue) len() int { return q.n }

func (q *readyQueue) clear() { *q = readyQueue{} }

// priority returns the task's priority, or else the job's, or else normal. A
// priority that this version does not know counts as the highest.
func (a *attempt) priority() dtaskv1.Priority {
	p := cmp.Or(a.policy.GetPriority(), a.jobContext.GetPriority(), dtaskv1.Priority_PRIORITY_NORMAL)
	return min(max(p, dtaskv1.Priority_PRIORITY_LOW), dtaskv1.Priority_PRIORITY_URGENT)
}
