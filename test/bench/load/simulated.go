package load

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// attempt identifies an attempt.
type attempt struct {
	job     uint64
	task, n uint32
}

func attemptOf(m *dtaskv1.AttemptRef) attempt {
	return attempt{job: m.GetJob(), task: m.GetTask(), n: m.GetAttempt()}
}

func (a attempt) message() *dtaskv1.AttemptRef {
	return &dtaskv1.AttemptRef{Job: a.job, Task: a.task, Attempt: a.n}
}

// waiting is an attempt that waits for a slot, and when its task became ready.
type waiting struct {
	attempt
	ready time.Time // zero: unknown
}

// simulated is one worker. Its attempts outlive its sessions.
type simulated struct {
	l           *Load
	index       int
	name        string
	incarnation string
	started     atomic.Int64

	mu       sync.Mutex // guards the rest
	random   *rand.Rand
	s        *session             // nil while none is open
	fence    *dtaskv1.Fence       // the highest seen; immutable
	queue    []waiting            // received, not started
	running  map[attempt]struct{} // started, not ended; nil until needed
	outcomes []columns.Outcome    // not acknowledged, in order
	first    uint64               // number of outcomes[0]
	sent     int                  // outcomes sent in this session
}

func newSimulated(l *Load, index int) *simulated {
	return &simulated{
		l: l, index: index, name: WorkerName(l.cfg.Name, index), first: 1,
		incarnation: fmt.Sprintf("%016x%016x", uint64(time.Now().UnixNano()), index), //nolint:gosec // after 1970
		random:      l.random(index),
	}
}

// assignedLocked queues attempts, and starts those that have a slot.
func (w *simulated) assignedLocked(m *dtaskv1.Assignments, now time.Time) error {
	rows, err := columns.ReadAssignments(m)
	if err != nil {
		return err //nolint:wrapcheck // the error is complete
	}
	w.l.counts.assigned.Add(int64(rows.Left()))
	var ( // tasks of a job mostly have the same body
		last  []byte
		ready time.Time
	)
	for rows.Left() > 0 {
		t := rows.Next()
		context := m.GetContexts()[t.Context]
		a := attempt{job: context.GetJob(), task: t.Task, n: t.Attempt}
		if context.GetPolicies()[t.Policy].GetExecution() == dtaskv1.Execution_EXECUTION_AT_MOST_ONCE {
			w.endLocked(a, dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED)
			continue
		}
		if !bytes.Equal(t.Body, last) {
			last, ready = t.Body, readyAt(t.Body)
		}
		w.queue = append(w.queue, waiting{a, ready})
	}
	w.startLocked(now)
	return nil
}

// readyAt returns when the task of a body became ready; the zero time if
// unknown.
func readyAt(body []byte) time.Time {
	var m dtaskv1.TaskBody
	_ = proto.Unmarshal(body, &m) // without a payload there is no stamp
	at, _ := stamped(m.GetPayload())
	return at
}

// startLocked assigns free slots to waiting attempts. Attempts that take no
// time end immediately.
func (w *simulated) startLocked(now time.Time) {
	n := 0
	for ; n < len(w.queue) && len(w.running) < w.l.cfg.Slots; n++ {
		a := w.queue[n]
		w.started.Add(1)
		if w.l.cfg.OnStart != nil {
			w.l.cfg.OnStart(a.job, a.task)
		}
		if !a.ready.IsZero() {
			w.l.latency.Add(now.Sub(a.ready))
		}
		takes := w.l.cfg.Takes(w.random)
		if takes <= 0 {
			w.endLocked(a.attempt, dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED)
			continue
		}
		if w.running == nil {
			w.running = make(map[attempt]struct{}, w.l.cfg.Slots)
		}
		w.running[a.attempt] = struct{}{}
		w.l.ends.add(end{at: now.Add(takes), w: w, a: a.attempt})
	}
	w.l.counts.started.Add(int64(n))
	if w.queue = w.queue[n:]; len(w.queue) == 0 {
		w.queue = nil
	}
}

func (w *simulated) endLocked(a attempt, kind dtaskv1.OutcomeKind) {
	o := columns.Outcome{Job: a.job, Task: a.task, Attempt: a.n}
	if kind != dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED {
		o.Detail = &dtaskv1.Outcome{Kind: kind, Fatal: kind == dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED}
	}
	w.outcomes = append(w.outcomes, o)
}

// ended ends an attempt whose time has passed.
func (w *simulated) ended(a attempt, now time.Time) {
	w.mu.Lock()
	if _, ok := w.running[a]; ok { // otherwise it was stopped
		delete(w.running, a)
		w.endLocked(a, dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED)
		w.startLocked(now)
	}
	w.flush()
}

// stopLocked ends an attempt on the leader's request, started or not.
func (w *simulated) stopLocked(a attempt, now time.Time) {
	_, runs := w.running[a]
	delete(w.running, a)
	if runs || w.dequeueLocked(a) {
		w.endLocked(a, dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED)
		w.startLocked(now)
	}
}

// releaseLocked releases an attempt that has not started.
func (w *simulated) releaseLocked(a attempt) {
	w.l.counts.stealRequests.Add(1)
	if w.dequeueLocked(a) {
		w.l.counts.released.Add(1)
		w.endLocked(a, dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED)
	}
}

// dequeueLocked removes an attempt that has not started.
func (w *simulated) dequeueLocked(a attempt) bool {
	i := slices.IndexFunc(w.queue, func(q waiting) bool { return q.attempt == a })
	if i < 0 {
		return false
	}
	w.queue = slices.Delete(w.queue, i, i+1)
	return true
}

// acknowledgedLocked removes acknowledged outcomes.
func (w *simulated) acknowledgedLocked(ack *dtaskv1.Ack) {
	if ack.GetThrough() < w.first {
		return
	}
	n := int(min(ack.GetThrough()-w.first+1, uint64(len(w.outcomes)))) //nolint:gosec // at most a length
	completed := int64(0)
	for _, o := range w.outcomes[:n] {
		if o.Detail == nil {
			completed++
		}
	}
	for _, e := range ack.GetExceptions() {
		if e.GetVerdict() == dtaskv1.Verdict_VERDICT_SUPERSEDED {
			w.l.counts.superseded.Add(1)
		}
		if e.GetVerdict() != dtaskv1.Verdict_VERDICT_ALREADY_ACCEPTED { // otherwise the first answer was lost with its session
			completed--
		}
	}
	w.l.counts.completed.Add(max(completed, 0))
	w.first += uint64(n) //nolint:gosec // not negative
	w.sent = max(0, w.sent-n)
	clear(w.outcomes[:n])
	if w.outcomes = w.outcomes[n:]; len(w.outcomes) == 0 {
		w.outcomes = nil
	}
}

// helloLocked returns the hello with held attempts and unacknowledged outcomes.
func (w *simulated) helloLocked() *dtaskv1.Hello {
	h := &dtaskv1.Hello{
		Name: w.name, Incarnation: w.incarnation, Slots: uint32(w.l.cfg.Slots), //nolint:gosec // checked
		Prefetch: uint32(w.l.cfg.Prefetch), //nolint:gosec // checked
		Labels:   w.l.cfg.Labels, NextReport: w.first, Version: "load",
	}
	for _, a := range w.queue {
		h.Held = append(h.Held, a.message())
	}
	for a := range w.running {
		h.Held = append(h.Held, a.message())
	}
	for _, o := range w.outcomes {
		h.Ended = append(h.Ended, attempt{job: o.Job, task: o.Task, n: o.Attempt}.message())
	}
	return h
}
