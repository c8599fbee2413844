package sequencer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// memoryLog is a log without Raft: one goroutine applies entries in order.
type memoryLog struct {
	machine *fsm.Machine
	queue   chan *memoryProposal
	done    chan struct{}

	mu      sync.Mutex
	entries [][]byte
	index   uint64
	cut     error // every later proposal fails with it, unless nil
	hold    chan struct{}
}

type memoryProposal struct {
	data     []byte
	response any
	index    uint64
	err      error
	done     chan struct{}
}

func (p *memoryProposal) Wait() (any, uint64, error) {
	<-p.done
	return p.response, p.index, p.err
}

func newMemoryLog(tb testing.TB, m *fsm.Machine) *memoryLog {
	tb.Helper()
	l := &memoryLog{machine: m, queue: make(chan *memoryProposal, 64), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for p := range l.queue {
			l.apply(p)
		}
	}()
	tb.Cleanup(func() {
		close(l.queue)
		<-l.done
	})
	return l
}

func (l *memoryLog) apply(p *memoryProposal) {
	l.mu.Lock()
	hold, cut := l.hold, l.cut
	if cut == nil {
		l.index++
		l.entries = append(l.entries, p.data)
		p.index = l.index
	}
	l.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if cut != nil {
		p.err = cut
	} else {
		p.response = l.machine.Apply(p.index, p.data)
	}
	close(p.done)
}

func (l *memoryLog) Propose(data []byte) sequencer.Proposal {
	p := &memoryProposal{data: data, done: make(chan struct{})}
	l.queue <- p
	return p
}

// fail makes every later proposal fail.
func (l *memoryLog) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = err
}

// pause stops applying entries until the returned function is called.
func (l *memoryLog) pause() (resume func()) {
	hold := make(chan struct{})
	l.mu.Lock()
	l.hold = hold
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		l.hold = nil
		l.mu.Unlock()
		close(hold)
	}
}

var errNeverProposed = errors.New("never proposed")

// cluster is a machine, its log, and the terms that led it.
type cluster struct {
	t       testing.TB
	machine *fsm.Machine
	log     *memoryLog
	term    uint64
	config  func(*sequencer.Config)
}

func newCluster(tb testing.TB) *cluster {
	tb.Helper()
	m := fsm.NewMachine()
	return &cluster{t: tb, machine: m, log: newMemoryLog(tb, m)}
}

// lead starts a term. The returned function ends it and waits.
func (c *cluster) lead() (*sequencer.Sequencer, func() error) {
	c.t.Helper()
	c.term++
	cfg := sequencer.Config{
		ServerID: "n1", Instance: "i1", Term: c.term, Log: c.log, Machine: c.machine,
		Logger: slog.New(slog.DiscardHandler), NewClusterID: func() string { return fmt.Sprintf("%032d", 1) },
		Definite: func(err error) bool { return errors.Is(err, errNeverProposed) },
		Halt:     func(err error) { c.t.Errorf("halt: %v", err) },
	}
	if c.config != nil {
		c.config(&cfg)
	}
	s, err := sequencer.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	var once sync.Once
	var result error
	end := func() error {
		once.Do(func() {
			cancel()
			result = <-over
		})
		return result
	}
	c.t.Cleanup(func() { _ = end() })
	select {
	case <-s.Ready():
	case err := <-over:
		c.t.Fatalf("term ended immediately: %v", err)
	}
	return s, end
}

func (c *cluster) job(id fsm.JobID) fsm.Job {
	var j fsm.Job
	c.machine.Read(func(s *fsm.State, _ uint64) { j, _ = s.Job(id) })
	return j
}

func (c *cluster) task(id fsm.JobID, i uint32) fsm.Task {
	var v fsm.Task
	c.machine.Read(func(s *fsm.State, _ uint64) { v, _ = s.Task(fsm.TaskRef{Job: id, Index: i}) })
	return v
}

// await waits until the machine satisfies a condition.
func (c *cluster) await(what string, ok func() bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for {
		index := c.machine.Index()
		if ok() {
			return
		}
		select {
		case <-c.machine.Changed(index):
		case <-ctx.Done():
			c.t.Fatalf("timed out waiting for %s", what)
		}
	}
}

func (c *cluster) awaitEnd(id fsm.JobID) fsm.Job {
	c.t.Helper()
	c.await(fmt.Sprintf("the end of job %d", id), func() bool { return c.job(id).State.Terminal() })
	return c.job(id)
}

// workersOf returns the status of the attached workers, however long the sequencer takes to
// answer.
func workersOf(tb testing.TB, s *sequencer.Sequencer) map[fsm.WorkerID]sequencer.WorkerStatus {
	tb.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if list := s.Workers(); list != nil { // otherwise it is busy
			return list
		}
	}
	tb.Fatal("the sequencer does not answer")
	return nil
}

// spec describes a job for tests.
type spec struct {
	key    string
	n      uint32
	deps   func(i uint32) []uint32
	policy *dtaskv1.TaskPolicy
	header *dtaskv1.JobHeader
	chunk  int    // tasks in a chunk
	finals uint32 // cleanup tasks among the n; they come last
}

func (x spec) submission() sequencer.Submission {
	p := x.policy
	if p == nil {
		p = &dtaskv1.TaskPolicy{Type: "noop", TimeoutMs: 60_000, Retry: &dtaskv1.RetryPolicy{Max: 3, InitialMs: 1, MultiplierPermille: 2000, MaxDelayMs: 10}}
	}
	h := x.header
	if h == nil {
		h = &dtaskv1.JobHeader{Name: "job", Priority: dtaskv1.Priority_PRIORITY_NORMAL}
	}
	final := proto.CloneOf(p)
	final.Finally = true
	h.Policies = []*dtaskv1.TaskPolicy{p, final}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(h)
	if err != nil {
		panic(err)
	}
	sub := sequencer.Submission{Key: x.key, Header: raw, Total: x.n}
	size := x.chunk
	if size == 0 {
		size = 1000
	}
	for first := uint32(0); first < x.n; {
		b := fsm.NewChunkBuilder(first)
		for b.Len() < size && first < x.n {
			var deps []uint32
			if x.deps != nil {
				deps = x.deps(first)
			}
			policy := uint32(0)
			if first >= x.n-x.finals {
				policy = 1
			}
			b.Add(fmt.Sprintf("t%d", first), policy, deps, []byte("\x2a\x04body"))
			first++
		}
		c := b.Chunk()
		sub.Sum = c.Sum(sub.Sum)
		sub.Chunks = append(sub.Chunks, c)
	}
	copy(sub.Digest[:], fmt.Sprintf("%s/%d", h.GetName(), x.n))
	return sub
}

func mustSubmit(tb testing.TB, s *sequencer.Sequencer, x spec) fsm.JobID {
	tb.Helper()
	r, err := s.Submit(tb.Context(), x.submission())
	if err != nil {
		tb.Fatalf("submit: %v", err)
	}
	return r.ID
}

// fakeWorker is a session whose worker answers assignments with a function.
type fakeWorker struct {
	t       testing.TB
	seq     *sequencer.Sequencer
	name    string
	id      fsm.WorkerID
	answer  func(fsm.AssignItem) *dtaskv1.Outcome // nil: the worker keeps running it
	tookMS  uint32                                // duration of each attempt
	mu      sync.Mutex
	held    []fsm.AttemptRef
	stops   []sequencer.Stop
	begins  []fsm.AttemptRef
	acks    []*dtaskv1.ReportVerdict
	through uint64
	drains  []bool // drain orders received
	saved   []*dtaskv1.CheckpointResult
	next    uint64
	heard   time.Time
	closed  error
	late    bool // a message arrives just before Close
	obeys   bool // it ends stopped attempts immediately
	changed chan struct{}
	work    chan []fsm.AssignItem
}

// attachWorker attaches a worker until the term ends.
func attachWorker(tb testing.TB, s *sequencer.Sequencer, name, incarnation string, slots uint32, answer func(fsm.AssignItem) *dtaskv1.Outcome, held ...fsm.AttemptRef) *fakeWorker {
	tb.Helper()
	return attachHello(tb, s, sequencer.Hello{Name: name, Incarnation: incarnation, Slots: slots, Held: held}, answer)
}

// attachHello is attachWorker for any worker.
func attachHello(tb testing.TB, s *sequencer.Sequencer, h sequencer.Hello, answer func(fsm.AssignItem) *dtaskv1.Outcome) *fakeWorker {
	tb.Helper()
	w := &fakeWorker{t: tb, seq: s, name: h.Name, answer: answer, next: 1, changed: make(chan struct{}, 1), work: make(chan []fsm.AssignItem, 1<<16)}
	w.held = h.Held
	welcome, err := s.Attach(tb.Context(), h, w)
	if err != nil {
		tb.Fatalf("attach %s: %v", h.Name, err)
	}
	w.id = welcome.Worker
	for _, a := range welcome.Stop {
		w.stops = append(w.stops, sequencer.Stop{Attempt: a, Reason: dtaskv1.StopReason_STOP_REASON_SUPERSEDED})
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case items := <-w.work:
				w.run(items)
			case <-stop:
				return
			}
		}
	}()
	tb.Cleanup(func() { close(stop); <-done })
	return w
}

func (w *fakeWorker) run(items []fsm.AssignItem) {
	var list []ended
	w.mu.Lock()
	first := w.next
	for _, it := range items {
		if o := w.answer(it); o != nil {
			list = append(list, ended{at: it.AttemptRef, how: o, tookMS: w.tookMS})
			w.next++
		} else {
			w.held = append(w.held, it.AttemptRef)
		}
	}
	w.mu.Unlock()
	if len(list) > 0 {
		r := &dtaskv1.Reports{Outcomes: outcomesOf(first, list...)}
		_ = w.seq.Report(context.Background(), w.id, w, r, false) // the term may have ended
	}
	w.note()
}

func (w *fakeWorker) report(kind dtaskv1.OutcomeKind, a fsm.AttemptRef) {
	w.mu.Lock()
	r := &dtaskv1.Reports{Outcomes: outcomesOf(w.next, ended{at: a, how: &dtaskv1.Outcome{Kind: kind}})}
	w.next++
	w.mu.Unlock()
	if err := w.seq.Report(context.Background(), w.id, w, r, false); err != nil {
		w.t.Errorf("report: %v", err)
	}
}

// forget drops the attempts of a job from what the worker holds.
func (w *fakeWorker) forget(id fsm.JobID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = slices.DeleteFunc(w.held, func(a fsm.AttemptRef) bool { return a.Job == id })
}

func (w *fakeWorker) note() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *fakeWorker) Flush() {}

func (w *fakeWorker) Send(m sequencer.WorkerMessage) {
	w.mu.Lock()
	w.stops = append(w.stops, m.Stops...)
	w.begins = append(w.begins, m.StartGrants...)
	w.acks = append(w.acks, m.Exceptions...)
	w.through = max(w.through, m.AckThrough)
	w.saved = append(w.saved, m.Checkpoints...)
	if m.Drain != nil {
		w.drains = append(w.drains, m.Drain.GetDraining())
	}
	obeys := w.obeys
	w.mu.Unlock()
	for _, stop := range m.Stops {
		if obeys {
			go w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED, stop.Attempt)
		}
	}
	if len(m.Assignments) > 0 {
		w.work <- m.Assignments
	}
	w.note()
}

func (w *fakeWorker) LastContact() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.heard.IsZero() {
		return time.Now()
	}
	return w.heard
}

// fallSilent stops all contact from the worker.
func (w *fakeWorker) fallSilent() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = time.Now()
}

func (w *fakeWorker) Close(reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = reason
	if w.late {
		w.heard = time.Now()
	}
}

// await waits until the worker satisfies a condition, which is called with the
// worker's lock held.
func (w *fakeWorker) await(what string, ok func() bool) {
	w.t.Helper()
	deadline := time.NewTimer(60 * time.Second)
	defer deadline.Stop()
	for {
		w.mu.Lock()
		good := ok()
		w.mu.Unlock()
		if good {
			return
		}
		select {
		case <-w.changed:
		case <-deadline.C:
			w.t.Fatalf("worker %s: timed out waiting for %s", w.name, what)
		}
	}
}

func succeed(fsm.AssignItem) *dtaskv1.Outcome {
	return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED}
}

func hold(fsm.AssignItem) *dtaskv1.Outcome { return nil }
