package sequencer_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// simCPU is the capacity of each worker at first, in thousandths.
const simCPU = 2000

// simPrefetch is the prefetch limit of each worker.
const simPrefetch = 3

// simPriorities is the number of priorities: attempts of each may fill a worker, if
// each overtakes those below it.
const simPriorities = 4

// execution is the execution of an attempt on a worker.
type execution struct {
	saves      uint32 // checkpoints
	atMostOnce bool
	limited    bool // it uses named limits, and is not at-most-once
	asking     bool // at-most-once, not started
	queued     bool // waiting for a slot
	priority   dtaskv1.Priority
	order      int  // among waiting ones of its priority
	reported   bool // its start was reported in this session
	chatty     bool // reports progress
	silent     bool // never reports its start
	deaf       bool // ignores a stop because of a drain
	cpu        int64
	ends       time.Time
	length     time.Duration
	outcome    *dtaskv1.Outcome // nil: hangs until stopped
}

func (w *simWorker) assigned(it fsm.AssignItem) {
	if w.held[it.AttemptRef] != nil || slices.ContainsFunc(w.outbox, func(o ended) bool { return o.at == it.AttemptRef }) {
		w.c.fail("worker %s got %v twice", w.name, it.AttemptRef)
		return
	}
	if it.Worker != w.id {
		w.c.fail("worker %s (%d) got %v, which is for %d", w.name, w.id, it.AttemptRef, it.Worker)
	}
	w.c.wasCommitted(it)
	w.checkPlacement(it)
	x := w.plan(it)
	if x == nil { // its job was archived: its body cannot be sent
		term, session, id := w.session.term, w.session, w.id
		w.c.call(term, time.Second, func(ctx context.Context, s *sequencer.Sequencer) error {
			return s.ReturnUndelivered(ctx, id, session, []fsm.AttemptRef{it.AttemptRef})
		}, func(error) {})
		return
	}
	w.held[it.AttemptRef] = x
	if w.cordoned || x.limited && w.leaseOver() {
		w.end(it.AttemptRef, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED})
		return
	}
	cpu := int64(0)
	for a, e := range w.held {
		if !w.c.forgotten[a.Job] && !w.tookUnknown(a) { // the resources of an archived job's attempts, which are being stopped, are unknown
			cpu += e.cpu
		}
	}
	// An update may have changed the priority since the assignment, so that the
	// attempts of each can't be counted.
	if len(w.held) > int(simPriorities*(w.slots+w.prefetch))+w.surplus || x.cpu > 0 && cpu > w.cpu {
		w.c.fail("worker %s has %d slots and holds %d attempts, with %d of its %d thousandths of cpu", w.name, w.slots, len(w.held), cpu, w.cpu)
	}
	if x.asking {
		return
	}
	w.orders++
	x.queued, x.order = true, w.orders
	w.startQueued()
}

// startQueued starts waiting attempts in free slots, the highest priority first.
func (w *simWorker) startQueued() {
	for {
		busy := 0
		var first fsm.AttemptRef
		for a, x := range w.held {
			switch {
			case !x.queued:
				busy++
			case w.held[first] == nil || x.before(w.held[first]):
				first = a
			}
		}
		if busy >= int(w.slots) || w.held[first] == nil {
			return
		}
		w.held[first].queued = false
		w.begin(first, w.held[first])
	}
}

// before reports whether a waiting attempt starts before another.
func (x *execution) before(y *execution) bool {
	return x.priority > y.priority || x.priority == y.priority && x.order < y.order
}

// release releases an attempt that has not started; sometimes the request is
// ignored.
func (w *simWorker) release(a fsm.AttemptRef) {
	if x := w.held[a]; x != nil && x.queued && !w.c.chance(10) {
		w.c.note("give-back", w.label(), uint64(a.Attempt))
		w.end(a, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED})
	}
}

// begin starts the execution of an attempt.
func (w *simWorker) begin(a fsm.AttemptRef, x *execution) {
	x.asking = false
	if x.limited && w.leaseOver() { // this process was paused
		w.end(a, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED})
		return
	}
	w.c.executionStarts(a, x.atMostOnce, w)
	w.endsIn(a, x, x.length)
	w.c.limits.mayIsolate(w, a.TaskRef, x.limited)
}

// endsIn schedules the end of an execution and replaces an earlier one.
func (w *simWorker) endsIn(a fsm.AttemptRef, x *execution, d time.Duration) {
	x.ends = time.Now().Add(d)
	w.c.at(x.ends, func() {
		w.awake(func() {
			if w.held[a] == x && x.outcome != nil && !time.Now().Before(x.ends) {
				w.end(a, x.outcome)
			}
		})
	})
}

func (w *simWorker) end(a fsm.AttemptRef, o *dtaskv1.Outcome) {
	delete(w.held, a)
	w.c.executionEnds(a, o.GetKind() == dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED)
	w.outbox = append(w.outbox, ended{at: a, how: o})
	w.startQueued()
	w.sendSoon()
}

func (w *simWorker) stop(a fsm.AttemptRef, why dtaskv1.StopReason) {
	x := w.held[a]
	releases := why == dtaskv1.StopReason_STOP_REASON_DRAINED || why == dtaskv1.StopReason_STOP_REASON_PREEMPTED
	switch {
	case x == nil:
	case releases && w.c.chance(20):
		x.deaf = true
	case (x.asking || x.queued) && releases:
		w.end(a, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED})
	case x.asking || x.queued:
		w.end(a, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED})
	case releases:
		x.outcome = &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED}
		w.endsIn(a, x, w.c.upTo(2*time.Second))
	default:
		x.outcome = &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED}
		w.endsIn(a, x, w.c.upTo(2*time.Second))
	}
}

// cordon releases attempts that have not started, and all later ones.
func (w *simWorker) cordon(on bool) {
	w.cordoned = on
	for _, a := range sortedRefs(w.held) {
		if x := w.held[a]; on && x != nil && (x.asking || x.queued) {
			w.end(a, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED})
		}
	}
}

// tookUnknown reports whether a leader does not know which alternative an attempt takes, because
// its task has a later one.
func (w *simWorker) tookUnknown(a fsm.AttemptRef) (unknown bool) {
	w.c.log.truth.Read(func(s *fsm.State, _ uint64) {
		t, _ := s.Task(a.TaskRef)
		unknown = t.Attempt != a.Attempt && len(s.Policy(a.TaskRef).GetAlternatives()) > 0
	})
	return unknown
}

// plan decides the outcome of an attempt; nil if its job was archived.
func (w *simWorker) plan(it fsm.AssignItem) *execution {
	c := w.c
	var p *dtaskv1.TaskPolicy
	cpu := int64(0)
	c.log.truth.Read(func(s *fsm.State, _ uint64) {
		p = s.Policy(it.TaskRef)
		if t, _ := s.Task(it.TaskRef); t.Attempt == it.Attempt { // else it is superseded, and what it took is unknown
			cpu = cpuOf(p, t.Alternative)
		}
	})
	if p == nil {
		return nil
	}
	once := p.GetExecution() == dtaskv1.Execution_EXECUTION_AT_MOST_ONCE
	x := &execution{
		atMostOnce: once, asking: once, limited: len(p.GetUses()) > 0 && !once, cpu: cpu, priority: p.GetPriority(),
		chatty: c.chance(70), silent: c.chance(5), outcome: c.outcome(),
	}
	switch n := c.rng.IntN(100); {
	case n < 60:
		x.length = c.upTo(300 * time.Millisecond)
	case n < 90:
		x.length = c.upTo(3 * time.Second)
	default:
		x.length = c.upTo(15 * time.Second)
	}
	if x.limited && c.chance(20) {
		x.length = c.upTo(20 * time.Second) // longer than a leader waits for its worker
	}
	if limit := time.Duration(p.GetTimeoutMs()) * time.Millisecond; x.length > limit {
		x.length, x.outcome = limit, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_TIMED_OUT, Error: "timeout"}
	}
	if c.chance(3) {
		x.outcome = nil
	}
	if c.chance(2) && !c.calm {
		w.leaving = true
	}
	return x
}

func (c *sim) outcome() *dtaskv1.Outcome {
	switch n := c.rng.IntN(100); {
	case n < 70:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, Result: make([]byte, c.rng.IntN(100))}
	case n < 85:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, ExitCode: 1}
	case n < 88:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, Fatal: true, Error: "fatal"}
	case n < 91:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, Temporary: true}
	case n < 93:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED}
	case n < 97:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED}
	case n < 98:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED}
	case n < 99:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, Signal: "KILL"}
	}
	switch c.rng.IntN(4) { // outcomes that no worker should report
	case 0:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, Result: make([]byte, 5000)}
	case 1:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, OutputSha256: make([]byte, 31)}
	case 2:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, Error: strings.Repeat("x", 10_000)}
	default:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind(99)}
	}
}
