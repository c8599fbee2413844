package sequencer_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// queueWorker executes its attempts in order, as many concurrently as it has
// slots, and releases those that it is asked for and has not started.
type queueWorker struct {
	t     *testing.T
	s     *sequencer.Sequencer
	id    fsm.WorkerID
	slots int
	takes func(fsm.AttemptRef) time.Duration
	begun func(fsm.AttemptRef)

	mu       sync.Mutex // guards the rest
	queue    []fsm.AttemptRef
	running  int
	outcomes []ended // unsent
	first    uint64
	most     int // maximum of attempts held beyond its slots
	sending  sync.Mutex
}

func (w *queueWorker) Close(error)            {}
func (w *queueWorker) Flush()                 {}
func (w *queueWorker) LastContact() time.Time { return time.Now() }

func (w *queueWorker) Send(m sequencer.WorkerMessage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range m.Assignments {
		w.queue = append(w.queue, it.AttemptRef)
	}
	for _, a := range m.StealRequests {
		if i := slices.Index(w.queue, a); i >= 0 {
			w.queue = slices.Delete(w.queue, i, i+1)
			w.endLocked(a, dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, 0)
		}
	}
	w.startLocked()
	w.most = max(w.most, len(w.queue))
}

func (w *queueWorker) startLocked() {
	for w.running < w.slots && len(w.queue) > 0 {
		a := w.queue[0]
		w.queue = w.queue[1:]
		w.running++
		w.begun(a)
		d := w.takes(a)
		time.AfterFunc(d, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.running--
			w.endLocked(a, dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, d)
			w.startLocked()
		})
	}
}

// endLocked reports an outcome, which takes a millisecond to arrive.
func (w *queueWorker) endLocked(a fsm.AttemptRef, kind dtaskv1.OutcomeKind, took time.Duration) {
	w.outcomes = append(w.outcomes, ended{at: a, how: &dtaskv1.Outcome{Kind: kind}, tookMS: uint32(took.Milliseconds())})
	time.AfterFunc(time.Millisecond, func() {
		w.sending.Lock()
		defer w.sending.Unlock()
		w.mu.Lock()
		list, r := w.outcomes, &dtaskv1.Reports{Outcomes: outcomesOf(w.first, w.outcomes...)}
		w.first += uint64(len(list))
		w.outcomes = nil
		w.mu.Unlock()
		if len(list) > 0 {
			_ = w.s.Report(context.Background(), w.id, w, r, false) // the term may have ended
		}
	})
}

// Workers prefetch short tasks; then long tasks follow, some much longer than
// others. No worker keeps a queue while another is idle: all tasks complete
// almost as early as with perfect knowledge.
func TestStealingBalancesSkewedTasks(t *testing.T) {
	t.Parallel()
	for _, shape := range []struct {
		name           string
		workers, slots int
	}{{"one slot each", 16, 1}, {"four slots each", 8, 4}} {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { skewed(t, shape.workers, shape.slots) })
		})
	}
}

func skewed(t *testing.T, workers, slots int) {
	t.Helper()
	const short = 200 * time.Microsecond // so short that the workers get as many as they want
	prefetch := 24 * slots
	shorts := uint32(workers*slots) * 100
	n := shorts + uint32(workers*(slots+prefetch))
	r := rand.New(rand.NewPCG(1, uint64(slots)))
	takes := make([]time.Duration, n)
	var sum time.Duration
	for i := range takes {
		takes[i] = short
		if uint32(i) >= shorts {
			takes[i] = 20*time.Millisecond + time.Duration(r.ExpFloat64()*float64(300*time.Millisecond))
			takes[i] = min(takes[i], 500*time.Millisecond).Round(time.Millisecond)
		}
		sum += takes[i]
	}
	c := newCluster(t)
	s, end := c.lead()
	defer func() { _ = end() }()
	var mu sync.Mutex
	running := make(map[fsm.TaskRef]uint32)
	var all []*queueWorker
	for i := range workers {
		w := &queueWorker{t: t, s: s, slots: slots, first: 1, takes: func(a fsm.AttemptRef) time.Duration { return takes[a.Index] }}
		w.begun = func(a fsm.AttemptRef) {
			mu.Lock()
			defer mu.Unlock()
			if before := running[a.TaskRef]; before != 0 {
				t.Errorf("%v starts although attempt %d has started", a, before)
			}
			running[a.TaskRef] = a.Attempt
		}
		welcome, err := s.Attach(t.Context(), sequencer.Hello{
			Name: "w" + string(rune('a'+i)), Incarnation: "i", Slots: uint32(slots), Prefetch: uint32(prefetch),
		}, w)
		if err != nil {
			t.Fatal(err)
		}
		w.id = welcome.Worker
		all = append(all, w)
	}
	began := time.Now()
	id := mustSubmit(t, s, spec{key: "skewed", n: n})
	job := c.awaitEnd(id)
	took := time.Since(began)
	best := max(sum/time.Duration(workers*slots), 500*time.Millisecond)
	stats := s.Stats()
	t.Logf("took %v, best possible %v, asked for %d, released %d", took, best, stats.StealRequests, stats.Steals)
	if job.State != fsm.JobCompleted {
		t.Fatalf("the job is %v", job.State)
	}
	if took > best+best/10 {
		t.Errorf("took %v, want at most a tenth above %v", took, best)
	}
	if stats.Steals == 0 || stats.Steals > uint64(workers*prefetch) {
		t.Errorf("%d attempts were released, want some, and none repeatedly", stats.Steals)
	}
	for _, w := range all {
		w.mu.Lock()
		most := w.most
		w.mu.Unlock()
		if most == 0 || most > prefetch {
			t.Errorf("worker %d had a queue of %d, want 1 to %d", w.id, most, prefetch)
		}
	}
	for i := range n {
		if v := c.task(id, i); v.Failures > 0 {
			t.Errorf("task %d counted a retry", i)
		}
	}
}

// It keeps its attempts.
func TestAWorkerThatHasStartedEverythingIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		defer func() { _ = end() }()
		a := attachWorker(t, s, "a", "i", 1, succeed)
		if _, err := s.Attach(t.Context(), sequencer.Hello{Name: "a", Incarnation: "i", Slots: 1, Prefetch: 8}, a); err != nil {
			t.Fatal(err)
		}
		c.awaitEnd(mustSubmit(t, s, spec{key: "short", n: 50}))
		a.mu.Lock()
		a.answer = hold // it never releases anything
		a.mu.Unlock()
		mustSubmit(t, s, spec{key: "held", n: 9})
		a.await("nine", func() bool { return len(a.held) == 9 })
		attachWorker(t, s, "b", "i", 4, succeed)
		time.Sleep(3500 * time.Millisecond) // virtual
		if got := s.Stats(); got.Steals != 0 || got.StealRequests < 4 || got.StealRequests > 20 {
			t.Errorf("asked for %d, released %d; want a few per second", got.StealRequests, got.Steals)
		}
	})
}

// Tasks are prefetched while they are short. When all slots of the worker are
// taken by longer ones, it must release what waits there, so that other tasks
// can go first, and other workers can run it.
func TestWhatWaitsBehindLongAttemptsIsRevoked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slots, prefetch, shorts, longs = 2, 8, 100, 10
		c := newCluster(t)
		s, end := c.lead()
		defer func() { _ = end() }()
		length := 200 * time.Microsecond
		var begun []fsm.AttemptRef
		w := &queueWorker{t: t, s: s, slots: slots, first: 1, takes: func(fsm.AttemptRef) time.Duration { return length }}
		w.begun = func(a fsm.AttemptRef) { begun = append(begun, a) }
		welcome, err := s.Attach(t.Context(), sequencer.Hello{Name: "w", Incarnation: "i", Slots: slots, Prefetch: prefetch}, w)
		if err != nil {
			t.Fatal(err)
		}
		w.id = welcome.Worker
		c.awaitEnd(mustSubmit(t, s, spec{key: "short", n: shorts}))
		w.mu.Lock()
		length, begun = 10*time.Second, nil
		w.mu.Unlock()
		id := mustSubmit(t, s, spec{key: "long", n: longs})
		time.Sleep(100 * time.Millisecond) // virtual
		w.mu.Lock()
		waiting, running := len(w.queue), &dtaskv1.Reports{}
		for _, a := range begun {
			running.Started = append(running.Started, &dtaskv1.Started{Attempt: &dtaskv1.AttemptRef{Job: uint64(a.Job), Task: a.Index, Attempt: a.Attempt}})
		}
		w.mu.Unlock()
		if waiting != longs-slots || len(running.GetStarted()) != slots {
			t.Fatalf("%d run and %d wait", len(running.GetStarted()), waiting)
		}
		if err := s.Report(t.Context(), w.id, w, running, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // virtual
		w.mu.Lock()
		waiting = len(w.queue)
		w.mu.Unlock()
		if counts := c.job(id).Counts; waiting != 0 || counts[fsm.Assigned] != slots || counts[fsm.Pending] != longs-slots {
			t.Errorf("%d wait at the worker; tasks by state: %v", waiting, counts)
		}
		if job := c.awaitEnd(id); job.State != fsm.JobCompleted || job.Retries != 0 {
			t.Errorf("got %+v", job)
		}
	})
}
