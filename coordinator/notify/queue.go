package notify

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/dtask/dtask/fsm"
)

// A pending notification is not delivered yet.
type pending struct {
	notification fsm.Notification
	failures     int
	due          time.Time
}

// A host is one destination: a host with its port, or the command. It has at most
// one delivery in flight, so that a receiver is never overloaded, and a slow one
// occupies only one of maxInFlight deliveries.
type host struct {
	name     string
	pending  byDue
	busy     bool
	failures int // deliveries in a row
}

// A queue holds the pending notifications by host. It is not safe for concurrent
// use.
type queue struct {
	hosts map[string]*host
}

func (q *queue) add(name string, p pending) {
	h := q.hosts[name]
	if h == nil {
		h = &host{name: name}
		q.hosts[name] = h
	}
	heap.Push(&h.pending, p)
}

// next removes the notification to deliver now. It prefers hosts that respond, so
// that failing hosts delay the others only when all deliveries are in use.
func (q *queue) next(now time.Time) (h *host, p pending, ok bool) {
	for _, x := range q.hosts {
		if x.busy || len(x.pending) == 0 || x.pending[0].due.After(now) {
			continue
		}
		if h == nil || x.before(h) {
			h = x
		}
	}
	if h == nil {
		return nil, pending{}, false
	}
	h.busy = true
	return h, heap.Pop(&h.pending).(pending), true //nolint:forcetypeassert,errcheck // the heap holds nothing else
}

func (h *host) before(o *host) bool {
	a, b := h.pending[0], o.pending[0]
	return cmp.Or(cmp.Compare(h.failures, o.failures), a.due.Compare(b.due), cmp.Compare(a.notification.Number, b.notification.Number)) < 0
}

// release ends the delivery in flight to a host.
func (q *queue) release(h *host, delivered bool) {
	h.busy = false
	h.failures++
	if delivered {
		h.failures = 0
	}
}

// removeIdle removes a host without pending notifications.
func (q *queue) removeIdle(h *host) {
	if !h.busy && len(h.pending) == 0 {
		delete(q.hosts, h.name)
	}
}

// nextDue returns when the next notification for an idle host is due; ok is false if
// all hosts are busy or have no notifications.
func (q *queue) nextDue() (at time.Time, ok bool) {
	for _, h := range q.hosts {
		if !h.busy && len(h.pending) > 0 && (!ok || h.pending[0].due.Before(at)) {
			at, ok = h.pending[0].due, true
		}
	}
	return at, ok
}

// byDue is a heap ordered by due time, then by number.
type byDue []pending

func (b *byDue) Len() int { return len(*b) }
func (b *byDue) Less(i, j int) bool {
	x, y := &(*b)[i], &(*b)[j]
	return cmp.Or(x.due.Compare(y.due), cmp.Compare(x.notification.Number, y.notification.Number)) < 0
}
func (b *byDue) Swap(i, j int) { (*b)[i], (*b)[j] = (*b)[j], (*b)[i] }
func (b *byDue) Push(x any)    { *b = append(*b, x.(pending)) } //nolint:forcetypeassert,errcheck // add is the only caller
func (b *byDue) Pop() any {
	old := *b
	x := old[len(old)-1]
	*b = old[:len(old)-1]
	return x
}
