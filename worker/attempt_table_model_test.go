package worker

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// end is how an attempt ended, as the twin sees it.
type end struct {
	ref
	kind dtaskv1.OutcomeKind
}

// twinLedger says what a worker owes in the plainest way: lists in which
// everything is looked for.
type twinLedger struct {
	asking, ready, running []ref
	stopped                map[ref]bool // of those that run
	exclusive              map[ref]bool
	cordoned               bool

	all   []end // that ever were, in order: the number of the first is 1
	acked int   // of them
	sent  int   // of those that are not acknowledged, in this session
}

func (w *twinLedger) owed() []end { return w.all[w.acked:] }

func (w *twinLedger) held() []ref {
	held := slices.Concat(w.asking, w.ready, w.running)
	slices.SortFunc(held, func(a, b ref) int { return cmp.Compare(a.task, b.task) })
	return held
}

func (w *twinLedger) knows(r ref) bool {
	return slices.Contains(w.held(), r) || slices.ContainsFunc(w.owed(), func(e end) bool { return e.ref == r })
}

func (w *twinLedger) end(r ref, kind dtaskv1.OutcomeKind) {
	is := func(other ref) bool { return other == r }
	w.asking, w.ready, w.running = slices.DeleteFunc(w.asking, is), slices.DeleteFunc(w.ready, is), slices.DeleteFunc(w.running, is)
	delete(w.stopped, r)
	w.all = append(w.all, end{r, kind})
}

// pair is a ledger and its twin, through sessions of which messages are lost.
type pair struct {
	l       *attemptTable
	twin    twinLedger
	starts  int // slot goroutines that were started and have not asked yet
	busy    []*attempt
	session bool
}

func newPair(t *rapid.T) *pair {
	p := &pair{twin: twinLedger{stopped: map[ref]bool{}, exclusive: map[ref]bool{}}}
	p.l = newAttemptTable(rapid.IntRange(1, 3).Draw(t, "slots"), &lease{ended: func() {}})
	p.l.base, p.l.run = t.Context(), func() { p.starts++ }
	return p
}

func anyRef(t *rapid.T) ref {
	return ref{job: 7, task: rapid.Uint32Range(0, 3).Draw(t, "task"), attempt: 1}
}

func (p *pair) assign(t *rapid.T) {
	var tasks []work
	for _, task := range rapid.SliceOfNDistinct(rapid.Uint32Range(0, 3), 1, 4, rapid.ID[uint32]).Draw(t, "tasks") {
		r, policy := ref{job: 7, task: task, attempt: 1}, &dtaskv1.TaskPolicy{}
		once := rapid.Bool().Draw(t, "at most once")
		if once {
			policy.Execution = dtaskv1.Execution_EXECUTION_AT_MOST_ONCE
		}
		tasks = append(tasks, work{task: task, typ: "x", policy: policy})
		if p.twin.knows(r) {
			continue
		}
		switch p.twin.exclusive[r] = once; {
		case p.twin.cordoned:
			p.twin.end(r, dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED)
		case once:
			p.twin.asking = append(p.twin.asking, r)
		default:
			p.twin.ready = append(p.twin.ready, r)
		}
	}
	if err := p.l.accept(assignments(tasks...), 1); err != nil {
		t.Fatal(err)
	}
}

func (p *pair) grant(t *rapid.T) {
	r := anyRef(t)
	p.l.grant(r)
	if at := slices.Index(p.twin.asking, r); at >= 0 {
		p.twin.asking = slices.Delete(p.twin.asking, at, at+1)
		p.twin.ready = slices.Insert(p.twin.ready, 0, r)
	}
}

// begin is what a slot's goroutine does first, and finish what it does then.
func (p *pair) begin(t *rapid.T) {
	if p.starts == 0 {
		t.Skip("no slot was started")
	}
	p.starts--
	p.begun(t, p.l.next(nil, nil))
}

func (p *pair) finish(t *rapid.T) {
	if len(p.busy) == 0 {
		t.Skip("nothing runs")
	}
	at := rapid.IntRange(0, len(p.busy)-1).Draw(t, "which")
	a := p.busy[at]
	p.busy = slices.Delete(p.busy, at, at+1)
	kind := rapid.SampledFrom([]dtaskv1.OutcomeKind{dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED}).Draw(t, "kind")
	ended := kind
	if p.twin.stopped[a.ref] {
		ended = dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED
	}
	p.twin.end(a.ref, ended)
	p.begun(t, p.l.next(a, &dtaskv1.Outcome{Kind: kind}))
}

func (p *pair) begun(t *rapid.T, a *attempt) {
	if a == nil {
		if len(p.twin.ready) > 0 {
			t.Fatalf("a slot ends while %v wait", p.twin.ready)
		}
		return
	}
	if len(p.twin.ready) == 0 || p.twin.ready[0] != a.ref {
		t.Fatalf("%v begins, of %v", a.ref, p.twin.ready)
	}
	p.twin.ready = p.twin.ready[1:]
	p.twin.running = append(p.twin.running, a.ref)
	if p.busy = append(p.busy, a); len(p.busy) > p.l.slots {
		t.Fatalf("%d attempts run in %d slots", len(p.busy), p.l.slots)
	}
}

func (p *pair) stop(t *rapid.T) {
	r := anyRef(t)
	held := slices.Contains(p.twin.held(), r)
	if p.l.stop(r, ErrCancelled) != held {
		t.Fatalf("stopping %v says held %v, want %v", r, !held, held)
	}
	switch {
	case slices.Contains(p.twin.running, r):
		p.twin.stopped[r] = true
	case held:
		p.twin.end(r, dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED)
	}
}

func (p *pair) giveBack(t *rapid.T) {
	r := anyRef(t)
	p.l.steal([]*dtaskv1.AttemptRef{r.message()})
	if slices.Contains(p.twin.ready, r) && !p.twin.exclusive[r] {
		p.twin.end(r, dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED)
	}
}

func (p *pair) cordon(*rapid.T) {
	p.twin.cordoned = !p.twin.cordoned
	p.l.cordon(p.twin.cordoned)
	if !p.twin.cordoned {
		return
	}
	for _, r := range p.twin.held() {
		if !slices.Contains(p.twin.running, r) {
			p.twin.end(r, dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED)
		}
	}
}

// greet begins a session, whatever became of what was sent in the one before.
func (p *pair) greet(t *rapid.T) {
	held, ended, next := p.l.startSession()
	var gotHeld, gotEnded, wantEnded []ref
	for _, m := range held {
		gotHeld = append(gotHeld, refOf(m))
	}
	for _, m := range ended {
		gotEnded = append(gotEnded, refOf(m))
	}
	for _, e := range p.twin.owed() {
		wantEnded = append(wantEnded, e.ref)
	}
	if !slices.Equal(gotHeld, p.twin.held()) || !slices.Equal(gotEnded, wantEnded) || next != uint64(p.twin.acked+1) { //nolint:gosec // small
		t.Fatalf("hello with %v held, %v ended, from %d on; want %v, %v, from %d on", gotHeld, gotEnded, next, p.twin.held(), wantEnded, p.twin.acked+1)
	}
	p.session, p.twin.sent = true, 0
}

// send takes what is to be sent: each outcome once in a session, in order.
func (p *pair) send(t *rapid.T) {
	if !p.session {
		t.Skip("there is no session")
	}
	beat := rapid.Bool().Draw(t, "beat")
	m := p.l.take(beat)
	rows, err := columns.ReadOutcomes(m.GetOutcomes())
	if err != nil {
		t.Fatal(err)
	}
	want := p.twin.owed()[p.twin.sent:]
	if rows.Left() != len(want) {
		t.Fatalf("%d outcomes are sent, want %v", rows.Left(), want)
	}
	for _, e := range want {
		p.twin.sent++
		o := rows.Next()
		kind := dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED
		if o.Detail != nil {
			kind = o.Detail.GetKind()
		}
		if number := uint64(p.twin.acked + p.twin.sent); refOfRow(&o) != e.ref || kind != e.kind || o.Number != number { //nolint:gosec // small
			t.Fatalf("outcome %d is of %v, %v; want %d, %v", o.Number, refOfRow(&o), kind, number, e)
		}
	}
	if beat {
		var asked []ref
		for _, r := range m.GetStartRequests() {
			asked = append(asked, refOf(r))
		}
		if !slices.Equal(asked, p.twin.asking) {
			t.Fatalf("a beat asks for %v, want %v", asked, p.twin.asking)
		}
	}
}

// acknowledge is for what was sent, also in an earlier session; an old one may
// come late.
func (p *pair) acknowledge(t *rapid.T) {
	through := rapid.IntRange(0, len(p.twin.all)).Draw(t, "through")
	p.l.acknowledge(uint64(through)) //nolint:gosec // not negative
	if n := through - p.twin.acked; n > 0 {
		p.twin.acked, p.twin.sent = through, max(0, p.twin.sent-n)
	}
}

func (p *pair) check(t *rapid.T) {
	running, owed := p.l.counts()
	if running != len(p.twin.running) || owed != len(p.twin.owed()) {
		t.Fatalf("%d run, %d are owed; want %v, %v", running, owed, p.twin.running, p.twin.owed())
	}
	if waits := len(p.twin.ready) > 0; waits && p.starts == 0 && len(p.busy) < p.l.slots {
		t.Fatalf("%v wait, %d of %d slots are busy, and none was started", p.twin.ready, len(p.busy), p.l.slots)
	}
	known := map[ref]bool{}
	for _, r := range p.twin.held() {
		known[r] = true
	}
	for _, e := range p.twin.owed() {
		known[e.ref] = true
	}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if got := slices.Collect(maps.Keys(p.l.known)); len(got) != len(known) {
		t.Fatalf("knows %v, want %v", got, known)
	}
}

// Whatever leaders and slots do, and however sessions end: all that a worker
// was given is either held or has one outcome, and each outcome is sent until
// it is acknowledged, in order, under one number.
func TestTheAttemptTableMatchesItsReferenceModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t)
		defer p.l.close()
		t.Repeat(map[string]func(*rapid.T){
			"assign":       p.assign,
			"assign again": p.assign,
			"grant":        p.grant,
			"grant again":  p.grant,
			"begin":        p.begin,
			"finish":       p.finish,
			"finish again": p.finish,
			"stop":         p.stop,
			"give back":    p.giveBack,
			"cordon":       p.cordon,
			"greet":        p.greet,
			"send":         p.send,
			"acknowledge":  p.acknowledge,
			"":             p.check,
		})
	})
}
