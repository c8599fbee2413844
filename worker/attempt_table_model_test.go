package worker

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// end is the end of an attempt, according to the model.
type end struct {
	ref
	kind dtaskv1.OutcomeKind
}

// tableModel is the reference model of the attempt table: plain lists that are
// searched from start to end.
type tableModel struct {
	requesting, ready, running []ref // ready ones in the order of their arrival
	starts                     int
	stopped                    map[ref]bool // among the running ones
	exclusive                  map[ref]bool
	cordoned                   bool

	all   []end // all ends so far, in order: the number of the first is 1
	acked int   // how many of all are acknowledged
	sent  int   // how many unacknowledged ones were sent in this session
}

// next returns the position in ready of the attempt that starts next; -1 without any. All
// have one priority: those that were granted are first, and the oldest at each 16th start.
func (w *tableModel) next() int {
	granted := slices.IndexFunc(w.ready, func(r ref) bool { return w.exclusive[r] })
	if granted < 0 || w.starts%16 == 15 {
		return min(0, len(w.ready)-1)
	}
	return granted
}

func (w *tableModel) unacked() []end { return w.all[w.acked:] }

func (w *tableModel) held() []ref {
	held := slices.Concat(w.requesting, w.ready, w.running)
	slices.SortFunc(held, func(a, b ref) int { return cmp.Compare(a.task, b.task) })
	return held
}

func (w *tableModel) knows(r ref) bool {
	return slices.Contains(w.held(), r) || slices.ContainsFunc(w.unacked(), func(e end) bool { return e.ref == r })
}

func (w *tableModel) end(r ref, kind dtaskv1.OutcomeKind) {
	is := func(other ref) bool { return other == r }
	w.requesting, w.ready, w.running = slices.DeleteFunc(w.requesting, is), slices.DeleteFunc(w.ready, is), slices.DeleteFunc(w.running, is)
	delete(w.stopped, r)
	w.all = append(w.all, end{r, kind})
}

// pair is an attempt table and its model, in sessions that lose messages.
type pair struct {
	table   *attemptTable
	model   tableModel
	starts  int // started slot goroutines that have not called next
	busy    []*attempt
	session bool
}

func newPair(t *rapid.T) *pair {
	p := &pair{model: tableModel{stopped: map[ref]bool{}, exclusive: map[ref]bool{}}}
	p.table = newAttemptTable(rapid.IntRange(1, 3).Draw(t, "slots"))
	p.table.confirm(time.Now(), time.Hour)
	p.table.base, p.table.run = t.Context(), func() { p.starts++ }
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
		if p.model.knows(r) {
			continue
		}
		switch p.model.exclusive[r] = once; {
		case p.model.cordoned:
			p.model.end(r, dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED)
		case once:
			p.model.requesting = append(p.model.requesting, r)
		default:
			p.model.ready = append(p.model.ready, r)
		}
	}
	if err := p.table.accept(assignments(tasks...), 1); err != nil {
		t.Fatal(err)
	}
}

func (p *pair) grant(t *rapid.T) {
	r := anyRef(t)
	p.table.grant(r)
	if at := slices.Index(p.model.requesting, r); at >= 0 {
		p.model.requesting = slices.Delete(p.model.requesting, at, at+1)
		p.model.ready = append(p.model.ready, r)
	}
}

// begin is the first call of a slot goroutine, and finish each further one.
func (p *pair) begin(t *rapid.T) {
	if p.starts == 0 {
		t.Skip("no slot goroutine was started")
	}
	p.starts--
	p.begun(t, p.table.next(nil, nil))
}

func (p *pair) finish(t *rapid.T) {
	if len(p.busy) == 0 {
		t.Skip("no attempt runs")
	}
	at := rapid.IntRange(0, len(p.busy)-1).Draw(t, "which")
	a := p.busy[at]
	p.busy = slices.Delete(p.busy, at, at+1)
	kind := rapid.SampledFrom([]dtaskv1.OutcomeKind{dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED}).Draw(t, "kind")
	ended := kind
	if p.model.stopped[a.ref] {
		ended = dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED
	}
	p.model.end(a.ref, ended)
	p.begun(t, p.table.next(a, &dtaskv1.Outcome{Kind: kind}))
}

func (p *pair) begun(t *rapid.T, a *attempt) {
	if a == nil {
		if len(p.model.ready) > 0 {
			t.Fatalf("a slot goroutine ended while %v wait", p.model.ready)
		}
		return
	}
	at := p.model.next()
	if at < 0 || p.model.ready[at] != a.ref {
		t.Fatalf("got start of %v, want position %d of %v", a.ref, at, p.model.ready)
	}
	p.model.ready = slices.Delete(p.model.ready, at, at+1)
	p.model.starts++
	p.model.running = append(p.model.running, a.ref)
	if p.busy = append(p.busy, a); len(p.busy) > p.table.slots {
		t.Fatalf("got %d running attempts in %d slots", len(p.busy), p.table.slots)
	}
}

func (p *pair) stop(t *rapid.T) {
	r := anyRef(t)
	held := slices.Contains(p.model.held(), r)
	if p.table.stop(r, ErrCancelled) != held {
		t.Fatalf("stop of %v: got held = %v, want %v", r, !held, held)
	}
	switch {
	case slices.Contains(p.model.running, r):
		p.model.stopped[r] = true
	case held:
		p.model.end(r, dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED)
	}
}

func (p *pair) steal(t *rapid.T) {
	r := anyRef(t)
	p.table.steal([]*dtaskv1.AttemptRef{r.message()})
	if slices.Contains(p.model.ready, r) && !p.model.exclusive[r] {
		p.model.end(r, dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED)
	}
}

func (p *pair) cordon(*rapid.T) {
	p.model.cordoned = !p.model.cordoned
	p.table.cordon(p.model.cordoned)
	if !p.model.cordoned {
		return
	}
	for _, r := range p.model.held() {
		if !slices.Contains(p.model.running, r) {
			p.model.end(r, dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED)
		}
	}
}

// startSession starts a session, whether the messages of the previous one
// arrived or not.
func (p *pair) startSession(t *rapid.T) {
	held, ended, next := p.table.startSession()
	var gotHeld, gotEnded, wantEnded []ref
	for _, m := range held {
		gotHeld = append(gotHeld, refOf(m))
	}
	for _, m := range ended {
		gotEnded = append(gotEnded, refOf(m))
	}
	for _, e := range p.model.unacked() {
		wantEnded = append(wantEnded, e.ref)
	}
	if !slices.Equal(gotHeld, p.model.held()) || !slices.Equal(gotEnded, wantEnded) || next != uint64(p.model.acked+1) { //nolint:gosec // small
		t.Fatalf("hello: got %v held, %v ended, from %d on; want %v, %v, from %d on", gotHeld, gotEnded, next, p.model.held(), wantEnded, p.model.acked+1)
	}
	p.session, p.model.sent = true, 0
}

// send takes the reports to send: each outcome once in a session, in order.
func (p *pair) send(t *rapid.T) {
	if !p.session {
		t.Skip("no session")
	}
	beat := rapid.Bool().Draw(t, "beat")
	m := p.table.take(beat)
	rows, err := columns.ReadOutcomes(m.GetOutcomes())
	if err != nil {
		t.Fatal(err)
	}
	want := p.model.unacked()[p.model.sent:]
	if rows.Left() != len(want) {
		t.Fatalf("got %d sent outcomes, want %v", rows.Left(), want)
	}
	for _, e := range want {
		p.model.sent++
		o := rows.Next()
		kind := dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED
		if o.Detail != nil {
			kind = o.Detail.GetKind()
		}
		if number := uint64(p.model.acked + p.model.sent); refOfRow(&o) != e.ref || kind != e.kind || o.Number != number { //nolint:gosec // small
			t.Fatalf("got outcome %d of %v, %v; want %d, %v", o.Number, refOfRow(&o), kind, number, e)
		}
	}
	if beat {
		var asked []ref
		for _, r := range m.GetStartRequests() {
			asked = append(asked, refOf(r))
		}
		if !slices.Equal(asked, p.model.requesting) {
			t.Fatalf("heartbeat: got requests %v, want %v", asked, p.model.requesting)
		}
	}
}

// acknowledge acknowledges sent outcomes, even of an earlier session; an old
// acknowledgment may arrive late.
func (p *pair) acknowledge(t *rapid.T) {
	through := rapid.IntRange(0, len(p.model.all)).Draw(t, "through")
	p.table.acknowledge(uint64(through)) //nolint:gosec // not negative
	if n := through - p.model.acked; n > 0 {
		p.model.acked, p.model.sent = through, max(0, p.model.sent-n)
	}
}

func (p *pair) check(t *rapid.T) {
	running, unacked := p.table.counts()
	if running != len(p.model.running) || unacked != len(p.model.unacked()) {
		t.Fatalf("got %d running, %d unacknowledged; want %v, %v", running, unacked, p.model.running, p.model.unacked())
	}
	if waits := len(p.model.ready) > 0; waits && p.starts == 0 && len(p.busy) < p.table.slots {
		t.Fatalf("%v wait, %d of %d slots are busy, and no slot goroutine was started", p.model.ready, len(p.busy), p.table.slots)
	}
	known := map[ref]bool{}
	for _, r := range p.model.held() {
		known[r] = true
	}
	for _, e := range p.model.unacked() {
		known[e.ref] = true
	}
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	if got := slices.Collect(maps.Keys(p.table.known)); len(got) != len(known) {
		t.Fatalf("knows %v, want %v", got, known)
	}
}

// Whatever leaders and slots do, and however sessions end, each received
// attempt is either held or has one outcome, and each outcome is sent until it
// is acknowledged, in order and under one number.
func TestTheAttemptTableMatchesItsReferenceModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t)
		defer p.table.close()
		t.Repeat(map[string]func(*rapid.T){
			"assign":       p.assign,
			"assign again": p.assign,
			"grant":        p.grant,
			"grant again":  p.grant,
			"begin":        p.begin,
			"finish":       p.finish,
			"finish again": p.finish,
			"stop":         p.stop,
			"steal":        p.steal,
			"cordon":       p.cordon,
			"greet":        p.startSession,
			"send":         p.send,
			"acknowledge":  p.acknowledge,
			"":             p.check,
		})
	})
}
