package sequencer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// chaosSession is the leader's end of a simulated worker's stream.
type chaosSession struct {
	mu     sync.Mutex
	queue  []chaosMessage // sent, not yet delivered
	heard  time.Time
	closed bool
}

type chaosMessage struct {
	at time.Time
	m  sequencer.Outgoing
}

func (x *chaosSession) Send(m sequencer.Outgoing) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.queue = append(x.queue, chaosMessage{time.Now(), m})
}

func (x *chaosSession) LastHeard() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.heard
}

func (x *chaosSession) Close(error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
}

func (x *chaosSession) hear() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.heard = time.Now()
}

func (x *chaosSession) isClosed() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.closed
}

// arrived takes out what was sent at least lag ago.
func (x *chaosSession) arrived(lag time.Duration) []sequencer.Outgoing {
	x.mu.Lock()
	defer x.mu.Unlock()
	var list []sequencer.Outgoing
	for len(x.queue) > 0 && time.Since(x.queue[0].at) >= lag {
		list = append(list, x.queue[0].m)
		x.queue = x.queue[1:]
	}
	return list
}

// chaosWorker is a worker without processes: a state machine that the driver of
// the simulation moves on.
type chaosWorker struct {
	c     *chaos
	name  string
	slots uint32
	zone  bool // has the label that some tasks require

	lives       int // incarnation
	held        map[fsm.AttemptRef]*chaosAttempt
	outbox      []*dtaskv1.Outcome // not acknowledged
	first       uint64             // number of outbox[0]
	sent        int                // of the outbox in this session
	pausedUntil time.Time
	leaving     bool

	session  *chaosSession // nil: has none
	seq      *sequencer.Sequencer
	id       fsm.WorkerID
	lag      time.Duration
	call     *chaosAttach // under way
	nextCall time.Time
}

type chaosAttach struct {
	session *chaosSession
	seq     *sequencer.Sequencer
	cancel  context.CancelFunc
	answer  chan chaosWelcome // size 1
}

type chaosWelcome struct {
	w   sequencer.Welcome
	err error
}

type chaosAttempt struct {
	asking  bool // at-most-once, has not begun
	told    bool // its begin was reported in this session
	chatty  bool // reports progress
	silent  bool // never says that it has begun
	ends    time.Time
	length  time.Duration
	outcome *dtaskv1.Outcome // nil: hangs until it is stopped
}

func (w *chaosWorker) incarnation() string { return fmt.Sprintf("%s-%d", w.name, w.lives) }

// step lets the worker do all that its time has come for.
func (w *chaosWorker) step() {
	if time.Now().Before(w.pausedUntil) {
		return
	}
	w.endAttempts()
	switch {
	case w.session != nil && w.session.isClosed():
		w.disconnect(0)
	case w.session != nil:
		w.session.hear()
		for _, m := range w.session.arrived(w.lag) {
			w.receive(m)
		}
		w.send()
	case w.call != nil:
		w.answered()
	case !time.Now().Before(w.nextCall) && w.c.seq != nil:
		w.dial()
	}
}

// endAttempts gives those whose time has come their outcome.
func (w *chaosWorker) endAttempts() {
	for _, a := range sortedRefs(w.held) {
		x := w.held[a]
		if !x.asking && x.outcome != nil && !time.Now().Before(x.ends) {
			w.end(a, x.outcome)
		}
	}
}

func (w *chaosWorker) end(a fsm.AttemptRef, o *dtaskv1.Outcome) {
	delete(w.held, a)
	o.Attempt = refTo(a)
	w.outbox = append(w.outbox, o)
}

func refTo(a fsm.AttemptRef) *dtaskv1.AttemptRef {
	return &dtaskv1.AttemptRef{Job: uint64(a.Job), Task: a.Index, Attempt: a.Attempt}
}

func refOf(a *dtaskv1.AttemptRef) fsm.AttemptRef {
	return fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: fsm.JobID(a.GetJob()), Index: a.GetTask()}, Attempt: a.GetAttempt()}
}

func sortedRefs(m map[fsm.AttemptRef]*chaosAttempt) []fsm.AttemptRef {
	list := make([]fsm.AttemptRef, 0, len(m))
	for a := range m {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b fsm.AttemptRef) int {
		if a.Job != b.Job {
			return int(a.Job) - int(b.Job)
		}
		if a.Index != b.Index {
			return int(a.Index) - int(b.Index)
		}
		return int(a.Attempt) - int(b.Attempt)
	})
	return list
}

func (w *chaosWorker) receive(m sequencer.Outgoing) {
	if m.AckThrough >= w.first {
		w.acknowledge(m)
	}
	for _, it := range m.Assign {
		w.assigned(it)
	}
	for _, s := range m.Stop {
		w.stop(s.Attempt)
	}
	for _, a := range m.MayBegin {
		if x := w.held[a]; x != nil && x.asking {
			w.c.begins(a)
			x.asking, x.ends = false, time.Now().Add(x.length)
		}
	}
}

func (w *chaosWorker) acknowledge(m sequencer.Outgoing) {
	verdicts := make(map[uint64]dtaskv1.Verdict)
	for _, x := range m.Exceptions {
		verdicts[x.GetNumber()] = x.GetVerdict()
	}
	n := min(m.AckThrough-w.first+1, uint64(len(w.outbox)))
	for i, o := range w.outbox[:n] {
		v, exception := verdicts[w.first+uint64(i)]
		if o.GetKind() == dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED && !refused(o) && (!exception || v == dtaskv1.Verdict_VERDICT_ALREADY_ACCEPTED) {
			w.c.accepted(refOf(o.GetAttempt()), w.id)
		}
	}
	w.outbox = w.outbox[n:]
	w.first += n
	w.sent = max(0, w.sent-int(n))
}

// refused reports whether a success is too large, or malformed, to be one.
func refused(o *dtaskv1.Outcome) bool {
	return len(o.GetResult()) > 4<<10 || len(o.GetOutputSha256())%32 != 0
}

func (w *chaosWorker) assigned(it fsm.AssignItem) {
	if w.held[it.AttemptRef] != nil || slices.ContainsFunc(w.outbox, func(o *dtaskv1.Outcome) bool { return refOf(o.GetAttempt()) == it.AttemptRef }) {
		w.c.fail("worker %s was given %v twice", w.name, it.AttemptRef)
		return
	}
	if it.Worker != w.id {
		w.c.fail("worker %s (%d) was given %v, which is for %d", w.name, w.id, it.AttemptRef, it.Worker)
	}
	x := w.c.plan(it, w)
	w.held[it.AttemptRef] = x
	if len(w.held) > int(w.slots) {
		w.c.fail("worker %s has %d slots and holds %d attempts", w.name, w.slots, len(w.held))
	}
}

func (w *chaosWorker) stop(a fsm.AttemptRef) {
	x := w.held[a]
	switch {
	case x == nil:
	case x.asking:
		w.end(a, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED})
	default:
		x.outcome = &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED}
		x.ends = time.Now().Add(w.c.upTo(2 * time.Second))
	}
}

// send reports what is new, at times with what was reported before.
func (w *chaosWorker) send() {
	r := &dtaskv1.Reports{}
	from := w.sent
	if w.c.chance(10) {
		from = w.c.rng.IntN(w.sent + 1)
	}
	if len(w.outbox) > from {
		r.First, r.Outcomes = w.first+uint64(from), slices.Clone(w.outbox[from:])
		w.sent = len(w.outbox)
	}
	for _, a := range sortedRefs(w.held) {
		x := w.held[a]
		switch {
		case x.asking:
			if w.c.chance(50) {
				r.MayBegin = append(r.MayBegin, refTo(a))
			}
		case !x.told && !x.silent:
			x.told = true
			r.Began = append(r.Began, &dtaskv1.Began{Attempt: refTo(a)})
		case x.chatty:
			r.Progress = append(r.Progress, &dtaskv1.Progress{Attempt: refTo(a), Permille: 1})
		}
	}
	if len(r.GetOutcomes())+len(r.GetBegan())+len(r.GetMayBegin())+len(r.GetProgress()) > 0 || w.leaving {
		_ = w.seq.Report(context.Background(), w.id, w.session, r, w.leaving) // the term may be over: it is repeated
	}
	if w.leaving && len(w.held) == 0 && len(w.outbox) == 0 {
		w.crash(0)
	}
}

// dial says hello.
func (w *chaosWorker) dial() {
	ctx, cancel := context.WithCancel(context.Background())
	h := sequencer.Hello{Name: w.name, Incarnation: w.incarnation(), Slots: w.slots, Resources: []fsm.Resource{{Name: "cpu", Amount: 2000}}}
	if w.zone {
		h.Labels = []fsm.Label{{Key: "zone", Value: "a"}}
	}
	h.Held = sortedRefs(w.held)
	for _, o := range w.outbox {
		h.Ended = append(h.Ended, refOf(o.GetAttempt()))
	}
	call := &chaosAttach{session: &chaosSession{heard: time.Now()}, seq: w.c.seq, cancel: cancel, answer: make(chan chaosWelcome, 1)}
	w.call = call
	w.c.running.Go(func() {
		welcome, err := call.seq.Attach(ctx, h, call.session)
		call.answer <- chaosWelcome{welcome, err}
	})
}

func (w *chaosWorker) answered() {
	var r chaosWelcome
	select {
	case r = <-w.call.answer:
	default:
		return
	}
	call := w.call
	w.call = nil
	call.cancel()
	if r.err != nil {
		w.nextCall = time.Now().Add(w.c.upTo(time.Second))
		return
	}
	w.session, w.seq, w.id, w.sent = call.session, call.seq, r.w.Worker, 0
	w.lag = w.c.upTo(50 * time.Millisecond)
	if w.c.chance(10) {
		w.lag = w.c.upTo(500 * time.Millisecond)
	}
	for _, x := range w.held {
		x.told = false
	}
	for _, a := range r.w.Stop {
		w.stop(a)
	}
}

// disconnect ends the session here; the leader hears of it after a while, or
// with the end of the session if it ends it itself.
func (w *chaosWorker) disconnect(unnoticed time.Duration) {
	if x, seq, id := w.session, w.seq, w.id; x != nil {
		w.c.later(unnoticed, x.isClosed, func() { seq.Detach(id, x) })
	}
	if call := w.call; call != nil {
		// The stream's handler hears of it, and detaches what it may have attached.
		call.cancel()
		w.c.running.Go(func() {
			if r := <-call.answer; r.err == nil {
				call.seq.Detach(r.w.Worker, call.session)
			}
		})
	}
	w.session, w.call = nil, nil
	w.nextCall = time.Now().Add(w.c.upTo(time.Second))
}

// crash ends the process and all that it runs; another one begins.
func (w *chaosWorker) crash(unnoticed time.Duration) {
	w.disconnect(unnoticed)
	w.lives++
	w.leaving = false
	w.held, w.outbox, w.first = make(map[fsm.AttemptRef]*chaosAttempt), nil, 1
	w.nextCall = time.Now().Add(w.c.upTo(5 * time.Second))
}

// pause stops the process for a while, with all that it runs.
func (w *chaosWorker) pause(d time.Duration) {
	w.pausedUntil = time.Now().Add(d)
	for _, x := range w.held {
		x.ends = x.ends.Add(d)
	}
}
