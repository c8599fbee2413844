package sequencer_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// simWorker is a worker without processes: the behavior of package worker as a
// state machine that events drive.
type simWorker struct {
	c      *sim
	name   string
	number int
	second bool // a second process under the name of another worker
	simConfig
	prefetch uint32
	surplus  int // attempts that it held when its configuration changed
	orders   int // number of assignments

	lives    int // incarnation
	gone     bool
	paused   time.Time // the process is paused until then
	isolated time.Time // it reaches no leader until then
	leaving  bool
	cordoned bool // drained by the operator
	held     map[fsm.AttemptRef]*execution
	outbox   []ended   // unacknowledged
	first    uint64    // number of outbox[0]
	sent     int       // number of reports sent in this session
	fence    uint64    // highest term seen
	answered time.Time // when a leader last answered a heartbeat

	id      fsm.WorkerID
	session *simSession // nil: none
	calling bool
	sending bool // an event is scheduled
}

func newSimWorker(c *sim, number int, twin bool) *simWorker {
	w := &simWorker{c: c, name: fmt.Sprintf("w%d", number), number: number, second: twin, first: 1}
	w.simConfig = simConfig{slots: 1 + uint32(c.rng.IntN(5)), cpu: simCPU}
	if number == 0 || c.chance(30) {
		w.zone = "a"
	}
	w.prefetch = uint32(c.rng.IntN(simPrefetch + 1))
	w.held = make(map[fsm.AttemptRef]*execution)
	c.after(c.upTo(2*time.Second), w.dial)
	c.after(c.upTo(time.Second), w.heartbeat)
	return w
}

func (w *simWorker) incarnation() string { return fmt.Sprintf("%s-%v-%d", w.name, w.second, w.lives) }

// shared reports whether there is a second process under its name.
func (w *simWorker) shared() bool { return w.number < w.c.opts.Twins }

func (w *simWorker) label() uint64 {
	if w.second {
		return uint64(w.number) + 1000
	}
	return uint64(w.number)
}

// pause stops the worker's process for a time. A process that is paused already continues
// when it would have: what it has not received yet stays in order.
func (w *simWorker) pause(d time.Duration) {
	if !time.Now().Before(w.paused) {
		w.paused = time.Now().Add(d)
	}
}

// awake runs an event of the worker when its process is not paused.
func (w *simWorker) awake(do func()) {
	life := w.lives
	var try func()
	try = func() {
		switch {
		case w.gone || w.lives != life:
		case time.Now().Before(w.paused):
			w.c.at(w.paused, try)
		default:
			do()
		}
	}
	try()
}

// simSession is both ends of a worker's stream. Messages arrive in order,
// later, or never if the stream breaks.
type simSession struct {
	c        *sim
	worker   *simWorker
	term     *simTerm
	lag      time.Duration
	down, up time.Time // when the last message in each direction arrives

	heard  time.Time // last contact; guarded by c.mu, as is closed
	closed bool
}

// simSent is a message of a term, or the end of the stream.
type simSent struct {
	x     *simSession
	m     sequencer.WorkerMessage
	close bool
}

// Send implements sequencer.Session.
func (x *simSession) Send(m sequencer.WorkerMessage) {
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	x.c.sent = append(x.c.sent, simSent{x: x, m: m})
}

// Flush implements sequencer.Session.
func (x *simSession) Flush() {}

// LastContact implements sequencer.Session.
func (x *simSession) LastContact() time.Time {
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	return x.heard
}

// Close implements sequencer.Session.
func (x *simSession) Close(error) {
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	x.closed = true
	x.c.sent = append(x.c.sent, simSent{x: x, close: true})
}

func (x *simSession) hear() {
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	x.heard = time.Now()
}

// delay returns the delay of the next message.
func (x *simSession) delay() time.Duration { return x.c.upTo(x.lag) }

// post schedules the arrival of messages from terms.
func (c *sim) post() {
	c.mu.Lock()
	list := c.sent
	c.sent = nil
	c.mu.Unlock()
	slices.SortStableFunc(list, func(a, b simSent) int { // a term closes its streams in any order
		return cmp.Compare(a.rank(), b.rank())
	})
	for _, s := range list {
		s.x.down = latest(s.x.down, time.Now().Add(s.x.delay()))
		c.at(s.x.down, func() { s.x.worker.awake(func() { s.arrive() }) })
	}
}

func (s simSent) rank() uint64 {
	if !s.close {
		return 0
	}
	return s.x.worker.label() + 1
}

func (s simSent) arrive() {
	w := s.x.worker
	if w.session != s.x {
		return // it has left the stream
	}
	if s.close {
		s.x.c.note("closed", w.label(), 0)
		w.disconnect(0)
		return
	}
	s.x.c.note("receive", w.label(), uint64(len(s.m.Assignments)))
	w.receive(s.m)
}

// heartbeat is what a worker does every second.
func (w *simWorker) heartbeat() {
	if w.gone {
		return
	}
	w.c.after(time.Second, w.heartbeat)
	if time.Now().Before(w.paused) {
		return
	}
	now := time.Now()
	if w.leaseOver() {
		w.limitedEnd() // this process was paused
	}
	if x := w.session; x != nil {
		switch {
		case x.isClosed():
			w.c.note("unanswered", w.label(), x.term.number)
		case !x.term.over && !x.term.isFrozen():
			w.c.note("heartbeat", w.label(), x.term.number)
			x.hear()
			w.answered = now
		case now.Sub(w.answered) > 2*time.Second:
			w.disconnect(w.c.upTo(3 * time.Second))
		}
	}
	if now.Sub(w.answered) >= w.c.opts.Lease-time.Second {
		w.leaseEnds()
		w.limitedEnd()
	}
	w.send()
}

func (x *simSession) isClosed() bool {
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	return x.closed
}

// leaseEnds stops attempts whose lease ends without contact to a leader.
func (w *simWorker) leaseEnds() {
	for _, a := range sortedRefs(w.held) {
		if x := w.held[a]; x != nil && x.atMostOnce && !x.asking {
			w.end(a, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED})
		}
	}
}

// dial sends a hello to the replica that the worker believes to lead.
func (w *simWorker) dial() {
	if w.gone || w.calling || w.session != nil {
		return
	}
	t := w.c.anyTerm()
	if t == nil || time.Now().Before(w.paused) || time.Now().Before(w.isolated) {
		w.c.after(w.c.upTo(time.Second), w.dial)
		return
	}
	h := sequencer.Hello{Name: w.name, Incarnation: w.incarnation(), Slots: w.slots, Prefetch: w.prefetch, Resources: []fsm.Resource{{Name: "cpu", Amount: w.cpu}}}
	h.Labels = w.labels()
	h.Held = sortedRefs(w.held)
	for _, o := range w.outbox {
		h.Ended = append(h.Ended, o.at)
	}
	x := &simSession{c: w.c, worker: w, term: t, heard: time.Now(), lag: w.c.opts.Lag}
	if w.c.chance(10) {
		x.lag *= 10
	}
	w.c.note("dial", w.label(), t.number)
	w.calling = true
	life := w.lives
	var welcome sequencer.Welcome
	w.c.call(t, 2500*time.Millisecond, func(ctx context.Context, s *sequencer.Sequencer) (err error) {
		welcome, err = s.Attach(ctx, h, x)
		return err
	}, func(err error) {
		if w.lives != life || w.gone {
			if err == nil { // the stream's handler finds its peer gone
				t.seq.Detach(welcome.Worker, x)
			}
			return
		}
		w.calling = false
		if err != nil {
			w.c.after(w.c.upTo(time.Second), w.dial)
			return
		}
		w.attached(x, welcome)
	})
}

// attached starts a session, unless its leader is older than one seen before.
func (w *simWorker) attached(x *simSession, welcome sequencer.Welcome) {
	w.session, w.id, w.sent = x, welcome.Worker, 0
	if x.term.number < w.fence {
		w.c.note("refuse-term", w.label(), x.term.number)
		w.disconnect(0)
		return
	}
	w.fence, w.answered = x.term.number, time.Now()
	w.drainNoted(nil)
	for _, e := range w.held {
		e.reported = false
	}
	w.cordon(welcome.Draining)
	for _, a := range welcome.Stop {
		w.stop(a, dtaskv1.StopReason_STOP_REASON_SUPERSEDED)
	}
	w.send()
}

func (w *simWorker) receive(m sequencer.WorkerMessage) {
	if m.AckThrough >= w.first {
		w.acknowledge(m)
	}
	for _, it := range m.Assignments {
		w.assigned(it)
	}
	for _, s := range m.Stops {
		w.stop(s.Attempt, s.Reason)
	}
	for _, x := range m.Checkpoints {
		if a := refOf(x.GetAttempt()); x.GetError() == "" && w.held[a] != nil {
			w.c.saved(a, x.GetNumber())
		}
	}
	if m.Drain != nil {
		w.cordon(m.Drain.GetDraining())
	}
	for _, a := range m.StealRequests {
		w.release(a)
	}
	for _, a := range m.StartGrants {
		if x := w.held[a]; x != nil && x.asking {
			w.begin(a, x)
		}
	}
	w.sendSoon()
}

func (w *simWorker) acknowledge(m sequencer.WorkerMessage) {
	verdicts := make(map[uint64]dtaskv1.Verdict)
	for _, x := range m.Exceptions {
		verdicts[x.GetNumber()] = x.GetVerdict()
	}
	n := min(m.AckThrough-w.first+1, uint64(len(w.outbox)))
	for i, o := range w.outbox[:n] {
		v, exception := verdicts[w.first+uint64(i)]
		if o.how.GetKind() == dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED && !refused(o.how) && (!exception || v == dtaskv1.Verdict_VERDICT_ALREADY_ACCEPTED) {
			w.c.accepted(o.at, w.id)
		}
	}
	w.outbox = w.outbox[n:]
	w.first += n
	w.sent = max(0, w.sent-int(n))
}

// refused reports whether a success is too large or malformed.
func refused(o *dtaskv1.Outcome) bool {
	return len(o.GetResult()) > 4<<10 || len(o.GetOutputSha256())%32 != 0
}

// sendSoon reports within a few milliseconds.
func (w *simWorker) sendSoon() {
	if w.sending || w.session == nil {
		return
	}
	w.sending = true
	w.c.after(w.c.upTo(5*time.Millisecond), func() {
		w.sending = false
		w.awake(w.send)
	})
}

// send reports new outcomes, sometimes with earlier ones.
func (w *simWorker) send() {
	if w.session == nil {
		return
	}
	r := &dtaskv1.Reports{}
	from := w.sent
	if w.c.chance(10) {
		from = w.c.rng.IntN(w.sent + 1)
	}
	if len(w.outbox) > from {
		r.Outcomes = outcomesOf(w.first+uint64(from), w.outbox[from:]...)
		w.sent = len(w.outbox)
	}
	for _, a := range sortedRefs(w.held) {
		x := w.held[a]
		switch {
		case x.queued:
		case x.asking:
			if w.c.chance(50) {
				r.StartRequests = append(r.StartRequests, refTo(a))
			}
		case !x.reported && !x.silent:
			x.reported = true
			r.Started = append(r.Started, &dtaskv1.Started{Attempt: refTo(a)})
		case w.c.chance(10):
			x.saves += uint32(w.c.rng.IntN(2)) // sometimes the previous one again
			r.Checkpoints = append(r.Checkpoints, checkpointOf(a, x.saves+1, fmt.Sprint(x.saves+1)))
		case x.chatty:
			r.Progress = append(r.Progress, &dtaskv1.Progress{Attempt: refTo(a), Permille: 1})
		}
	}
	if len(r.GetOutcomes().GetTasks())+len(r.GetStarted())+len(r.GetStartRequests())+len(r.GetProgress())+len(r.GetCheckpoints()) > 0 || w.leaving {
		w.submit(w.session, r)
	}
	if w.leaving && len(w.held) == 0 && len(w.outbox) == 0 {
		w.crash(0)
	}
}

// submit sends a report. It also arrives if the stream breaks afterwards.
func (w *simWorker) submit(x *simSession, r *dtaskv1.Reports) {
	id, leaving := w.id, w.leaving
	x.up = latest(x.up, time.Now().Add(x.delay()))
	w.c.at(x.up, func() {
		if x.term.over {
			return
		}
		w.c.note("report", w.label(), uint64(len(r.GetOutcomes().GetTasks())))
		x.hear()
		_ = x.term.seq.Report(context.Background(), id, x, r, leaving) // the term may have ended: it is repeated
		if leaving && w.session == x {
			w.drainNoted(x.term)
		}
	})
}

// disconnect ends the session; the leader learns of it later.
func (w *simWorker) disconnect(unnoticed time.Duration) {
	x := w.session
	if x == nil {
		return
	}
	w.c.note("disconnect", w.label(), uint64(unnoticed))
	w.session = nil
	w.drainNoted(nil)
	id := w.id
	w.c.after(unnoticed, func() {
		if !x.term.over {
			x.term.seq.Detach(id, x)
		}
	})
	w.c.after(w.c.upTo(time.Second), w.dial)
}

// crash ends the process and all its attempts; another process starts.
func (w *simWorker) crash(unnoticed time.Duration) {
	w.c.note("crash", w.label(), uint64(unnoticed))
	w.disconnect(unnoticed)
	for _, a := range sortedRefs(w.held) {
		w.c.executionEnds(a, false)
	}
	w.lives++
	w.leaving, w.cordoned, w.calling, w.paused, w.sending = false, false, false, time.Time{}, false
	w.held, w.outbox, w.first = make(map[fsm.AttemptRef]*execution), nil, 1
	w.fence, w.surplus = 0, 0
	w.c.after(w.c.upTo(5*time.Second), w.dial)
}

// secondEnds removes the second process under a name.
func (w *simWorker) secondEnds() {
	if w.second {
		w.crash(0)
		w.gone = true
	}
}

func refTo(a fsm.AttemptRef) *dtaskv1.AttemptRef {
	return &dtaskv1.AttemptRef{Job: uint64(a.Job), Task: a.Index, Attempt: a.Attempt}
}

func refOf(a *dtaskv1.AttemptRef) fsm.AttemptRef { return sequencer.AttemptOf(a) }

func compareRefs(a, b fsm.AttemptRef) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Attempt, b.Attempt))
}

func sortedRefs(m map[fsm.AttemptRef]*execution) []fsm.AttemptRef {
	list := make([]fsm.AttemptRef, 0, len(m))
	for a := range m {
		list = append(list, a)
	}
	slices.SortFunc(list, compareRefs)
	return list
}

// wasPaused reports whether the process is, or was recently, unable to stop its
// attempts.
func (w *simWorker) wasPaused() bool { return time.Now().Before(w.paused.Add(2 * time.Second)) }
