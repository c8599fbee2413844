package worker

import (
	"cmp"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// agedStart is how often a start is that of the oldest waiting attempt, whatever its
// priority: the leader counts in the same way, but what it has assigned waits here.
const agedStart = 16

// readyQueue holds the attempts that wait for a slot: the highest priority first, and then
// in the order of their arrival. Every 16th start is the oldest attempt, so that one which
// a older ones precede starts within 16·(a + 1) starts of the worker.
type readyQueue struct {
	byPriority [dtaskv1.Priority_PRIORITY_URGENT + 1]struct{ granted, arrived waitingList }
	arrivals   uint64
	turn       int // starts since that of the oldest
	n          int // of attempts, with those that ended while they waited
}

// A waitingList has attempts in the order of their arrival. It keeps its memory, so that attempts
// that come and go need no more of it.
type waitingList struct {
	attempts []*attempt
	head     int // of those that wait; the places before it are nil
}

// maxKeptWaiting bounds the memory that a list keeps when no attempt waits.
const maxKeptWaiting = 4096

// push adds an attempt behind those of its priority.
func (q *readyQueue) push(a *attempt) { q.add(&q.byPriority[a.priority()].arrived, a) }

// pushGranted adds an at-most-once attempt that the leader lets start, ahead of the others
// of its priority: it has waited for that.
func (q *readyQueue) pushGranted(a *attempt) { q.add(&q.byPriority[a.priority()].granted, a) }

func (q *readyQueue) add(to *waitingList, a *attempt) {
	q.arrivals++
	a.arrival = q.arrivals
	to.push(a)
	q.n++
}

// pop removes and returns the attempt that starts next, and drops those before it that ended
// while they waited; nil if none is left.
func (q *readyQueue) pop() *attempt {
	for q.n > 0 {
		next := q.first()
		if q.turn == agedStart-1 {
			next = q.oldest()
		}
		a := next.pop()
		q.n--
		if a.phase == phaseReady {
			q.turn = (q.turn + 1) % agedStart
			return a
		}
	}
	return nil
}

// first returns the list with the first attempt of the highest priority.
func (q *readyQueue) first() *waitingList {
	for p := len(q.byPriority) - 1; p >= 0; p-- {
		if of := &q.byPriority[p]; of.granted.len() > 0 {
			return &of.granted
		} else if of.arrived.len() > 0 {
			return &of.arrived
		}
	}
	return nil
}

// oldest returns the list with the attempt that arrived first.
func (q *readyQueue) oldest() (list *waitingList) {
	for p := range q.byPriority {
		for _, l := range []*waitingList{&q.byPriority[p].granted, &q.byPriority[p].arrived} {
			if l.len() > 0 && (list == nil || l.first().arrival < list.first().arrival) {
				list = l
			}
		}
	}
	return list
}

func (l *waitingList) len() int { return len(l.attempts) - l.head }

// first returns the first attempt of a list that is not empty.
func (l *waitingList) first() *attempt { return l.attempts[l.head] }

func (l *waitingList) push(a *attempt) {
	if len(l.attempts) == cap(l.attempts) && l.head > len(l.attempts)/2 {
		left := copy(l.attempts, l.attempts[l.head:])
		clear(l.attempts[left:])
		l.attempts, l.head = l.attempts[:left], 0
	}
	l.attempts = append(l.attempts, a)
}

// pop removes and returns the first attempt of a list that is not empty.
func (l *waitingList) pop() *attempt {
	a := l.attempts[l.head]
	l.attempts[l.head] = nil // an ended attempt must not be kept by the queue
	if l.head++; l.len() == 0 {
		l.attempts, l.head = l.attempts[:0], 0
		if cap(l.attempts) > maxKeptWaiting {
			l.attempts = nil
		}
	}
	return a
}

func (q *readyQueue) len() int { return q.n }

func (q *readyQueue) clear() { *q = readyQueue{} }

// priority returns the task's priority, or else the job's, or else normal. A
// priority that this version does not know counts as the highest.
func (a *attempt) priority() dtaskv1.Priority {
	p := cmp.Or(a.policy.GetPriority(), a.jobContext.GetPriority(), dtaskv1.Priority_PRIORITY_NORMAL)
	return min(max(p, dtaskv1.Priority_PRIORITY_LOW), dtaskv1.Priority_PRIORITY_URGENT)
}
