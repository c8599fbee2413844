package notify

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/dtask/dtask/fsm"
)

// waiting is a notice that is not delivered yet.
type waiting struct {
	notice   fsm.Notification
	failures int
	due      time.Time
}

// host is one destination: a host with its port, or the command. It has at most
// one delivery on its way, so that a receiver is never overrun, and a slow one
// takes one place of those that there are.
type host struct {
	name     string
	notices  byDue
	busy     bool
	failures int // deliveries in a row
}

// queue holds the notices by destination. Not safe for concurrent use.
type queue struct {
	hosts map[string]*host
	n     int
}

func (q *queue) add(to string, w waiting) {
	h := q.hosts[to]
	if h == nil {
		h = &host{name: to}
		q.hosts[to] = h
	}
	heap.Push(&h.notices, w)
	q.n++
}

// next takes out the notice to deliver now. Hosts that answer go first, so that
// those that are gone delay nobody as long as a place is free.
func (q *queue) next(now time.Time) (h *host, w waiting, ok bool) {
	for _, x := range q.hosts {
		if x.busy || len(x.notices) == 0 || x.notices[0].due.After(now) {
			continue
		}
		if h == nil || x.before(h) {
			h = x
		}
	}
	if h == nil {
		return nil, waiting{}, false
	}
	h.busy = true
	q.n--
	return h, heap.Pop(&h.notices).(waiting), true //nolint:forcetypeassert,errcheck // the heap holds nothing else
}

func (h *host) before(o *host) bool {
	a, b := h.notices[0], o.notices[0]
	return cmp.Or(cmp.Compare(h.failures, o.failures), a.due.Compare(b.due), cmp.Compare(a.notice.Number, b.notice.Number)) < 0
}

// done ends the delivery that is on its way to a host.
func (q *queue) done(h *host, delivered bool) {
	h.busy = false
	h.failures++
	if delivered {
		h.failures = 0
	}
}

// tidy forgets a host that has nothing left.
func (q *queue) tidy(h *host) {
	if !h.busy && len(h.notices) == 0 {
		delete(q.hosts, h.name)
	}
}

// soonest is when the next notice is due whose host is free; ok is false if there
// is none.
func (q *queue) soonest() (at time.Time, ok bool) {
	for _, h := range q.hosts {
		if !h.busy && len(h.notices) > 0 && (!ok || h.notices[0].due.Before(at)) {
			at, ok = h.notices[0].due, true
		}
	}
	return at, ok
}

// byDue is a heap by time, then by number.
type byDue []waiting

func (b *byDue) Len() int { return len(*b) }
func (b *byDue) Less(i, j int) bool {
	x, y := &(*b)[i], &(*b)[j]
	return cmp.Or(x.due.Compare(y.due), cmp.Compare(x.notice.Number, y.notice.Number)) < 0
}
func (b *byDue) Swap(i, j int) { (*b)[i], (*b)[j] = (*b)[j], (*b)[i] }
func (b *byDue) Push(x any)    { *b = append(*b, x.(waiting)) } //nolint:forcetypeassert,errcheck // add is the only caller
func (b *byDue) Pop() any {
	old := *b
	x := old[len(old)-1]
	*b = old[:len(old)-1]
	return x
}
