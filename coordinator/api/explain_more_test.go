package api

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler"
)

// The answer about a task that waits for others has their reasons, too.
func TestARootOfABlockedTaskHasItsOwnReason(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("retried"), task("runs"), task("waits"), task("last", 0, 1, 2))
	w := r.worker(t)
	r.assign(t, held(1, 0, 1, w))
	r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason {
		return d.Fail(fsm.FailItem{HeldAttempt: held(1, 0, 1, w), Next: fsm.NextRetry, Due: 9_000_000, CountsAsRetry: true, Error: "exit 1"})
	})
	r.assign(t, held(1, 1, 1, w))
	r.leader.observed = map[fsm.JobID]map[uint32]sequencer.Observation{1: {1: {Attempt: 1, StartedMS: 77, Permille: 420, Text: "half"}}}
	_, got := r.explainTask(t, "last")
	want := `waits_for_task: it waits for task retried, which is scheduled: attempt 2 starts no earlier than 1970-01-01 02:30:00Z: exit 1
waits_for_task: it waits for task runs, which is running: attempt 1 runs on worker w1, 42 % done: half
waits_for_task: it waits for task waits, which is pending: it is ready and waits for a worker`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A chain of cancellations is followed through a bounded number of dependencies. Beyond
// them, no first cause is named rather than a wrong one.
func TestTheSearchForAFirstCauseIsBounded(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.inAllStates(t)
	tasks, _, err := r.openTasks("1")
	if err != nil {
		t.Fatal(err)
	}
	ref, _ := tasks.st.FindTask(1, "blocked-by-dead")
	for scanned, want := range map[int]string{0: "cancelled first_cause", maxScanned - 1: "cancelled first_cause", maxScanned: "cancelled"} {
		x := newExplainer(tasks, ref, &sequencer.Explanation{}, open)
		x.scanned = scanned
		x.explain()
		var codes []string
		for _, reason := range x.resp.GetReasons() {
			codes = append(codes, reason.GetCode())
		}
		if got := strings.Join(codes, " "); got != want {
			t.Errorf("after %d dependencies: got %s, want %s", scanned, got, want)
		}
	}
}

func TestTheUnfinishedTasksOfAJobAreGroupedByReason(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.inAllStates(t)
	asked := 0
	r.leader.explain = func(e *sequencer.Explanation) {
		asked++
		e.Capacity = capacityOf(&sequencer.Capacity{EverFits: true, Complete: true, Groups: []sequencer.WorkerGroup{{Workers: []fsm.WorkerID{1}, Obstacles: []sequencer.Obstacle{{Code: "no_free_slot", Want: 1, Total: 4}}}}})
	}
	e, err := r.jobs.Explain(t.Context(), &dtaskv1.ExplainRequest{Job: "1"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range e.GetTasks() {
		got = append(got, strings.Join(g.GetNames(), ",")+": "+g.GetReason().GetCode())
	}
	// The first two are pending for one reason.
	want := []string{"run,command: no_free_capacity", "retry: retry_delay", "held: tasks_starting", "running: tasks_running"}
	if !slices.Equal(got, want) || !e.GetComplete() || e.GetJobState() != dtaskv1.JobState_JOB_STATE_RUNNING || asked == 0 {
		t.Errorf("got %q in %v, complete: %v; want %q", got, e.GetJobState(), e.GetComplete(), want)
	}
}

func TestAJobThatHasEndedOrWaitsForAnotherIsExplained(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "first", task("a"))
	h := header("second")
	h.Needs = []*dtaskv1.JobNeed{{Job: 1, Condition: dtaskv1.Condition_CONDITION_ENDED}}
	if _, err := r.send(t.Context(), request("k", h, task("b"))); err != nil {
		t.Fatal(err)
	}
	reason := func(job string) string {
		e, err := r.jobs.Explain(t.Context(), &dtaskv1.ExplainRequest{Job: job})
		if err != nil || len(e.GetReasons()) != 1 {
			t.Fatalf("job %s: got %v, %v", job, e, err)
		}
		return e.GetReasons()[0].GetText()
	}
	if got := reason("2"); got != "its job needs job 1, which must end as ended" {
		t.Errorf("got %q", got)
	}
	w := r.worker(t)
	r.complete(t, held(1, 0, 1, w), "")
	if got := reason("1"); got != "it has ended: completed" {
		t.Errorf("got %q", got)
	}
}

// Run times are those of the tasks with the same name in jobs with the same name and owner,
// and of no others.
func TestRunTimesAreThoseOfTasksThatAreAlike(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.worker(t)
	for job := fsm.JobID(1); job <= 6; job++ {
		if _, err := r.send(t.Context(), request(strconv.Itoa(int(job)), header("nightly"), task("load"), task("sum"))); err != nil { //nolint:gosec // small
			t.Fatal(err)
		}
		for i, took := range []uint32{1000, 9000} {
			h := held(job, uint32(i), 1, w) //nolint:gosec // small
			r.assign(t, h)
			r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason {
				return d.Complete(fsm.CompleteItem{HeldAttempt: h, DurationMS: took})
			})
		}
	}
	r.submit(t, "other", task("load"))   // job 7
	r.submit(t, "nightly", task("load")) // job 8
	st, _ := r.machine.Fork()
	x := &runTimeReader{ctx: t.Context(), server: r.Server, st: st}
	if list := x.of(fsm.TaskRef{Job: 8}); len(list) != 6 || list[0] != time.Second || list[5] != time.Second {
		t.Errorf("got %v, want 6 times 1s", list)
	}
	if list := x.of(fsm.TaskRef{Job: 7}); len(list) != 0 {
		t.Errorf("got %v of a job with another name", list)
	}
	if a, b := x.of(fsm.TaskRef{Job: 1, Index: 1}), x.of(fsm.TaskRef{Job: 2, Index: 1}); len(a) != 6 || &a[0] != &b[0] {
		t.Errorf("got %v and %v, want one list", a, b)
	}
}

// What is read of the history for one answer is bounded, and what it lacks is not kept.
func TestTheHistoryThatIsReadForAnEstimateIsBounded(t *testing.T) {
	t.Parallel()
	h, change := withHistory(t, true, nil)
	r := setup(t, change)
	w := r.worker(t)
	for job := fsm.JobID(1); job <= 3; job++ {
		if _, err := r.send(t.Context(), request(strconv.Itoa(int(job)), header("nightly"), task("load"))); err != nil { //nolint:gosec // small
			t.Fatal(err)
		}
		r.complete(t, held(job, 0, 1, w), "")
	}
	r.leader.op(t, &fsm.Archive{Items: []fsm.JobID{1, 2, 3}})
	if err := h.Sync(t.Context(), r.machine.Index()); err != nil {
		t.Fatal(err)
	}
	r.submit(t, "nightly", task("load")) // job 4
	st, _ := r.machine.Fork()
	for read, want := range map[int64]int{maxHistoryRead: 0, 0: 3} {
		x := &runTimeReader{ctx: t.Context(), server: r.Server, st: st, historyRead: read}
		r.runTimes = runTimeCache{}
		if list := x.of(fsm.TaskRef{Job: 4}); len(list) != want {
			t.Errorf("after %d bytes: got %v, want %d", read, list, want)
		}
		if _, kept := r.runTimes.get(x.byTask[fsm.TaskRef{Job: 4}]); kept != (want > 0) {
			t.Errorf("after %d bytes: kept: %t", read, kept)
		}
	}
}

// The memory of run times is bounded.
func TestRunTimesOfFewUnitsAreKept(t *testing.T) {
	t.Parallel()
	var c runTimeCache
	for i := range 3 * maxRunTimeUnits {
		c.put(unitName{unit: strconv.Itoa(i)}, nil)
		if len(c.m) > maxRunTimeUnits {
			t.Fatalf("got %d units, want at most %d", len(c.m), maxRunTimeUnits)
		}
	}
	if _, ok := c.get(unitName{unit: strconv.Itoa(3*maxRunTimeUnits - 1)}); !ok {
		t.Error("the last unit is not known")
	}
}

func TestAnEstimateIsShown(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"), task("b"))
	got := sequencer.StartEstimate{From: 90 * time.Second, To: 150 * time.Second}
	r.leader.explain = func(e *sequencer.Explanation) {
		e.NowMS = 1_000_000
		e.Capacity = capacityOf(&sequencer.Capacity{EverFits: true, Complete: true})
		e.Estimate = func(func(fsm.TaskRef) []time.Duration) sequencer.StartEstimate { return got }
	}
	e, _ := r.explainTask(t, "a")
	if x := e.GetEstimate(); x.GetCode() != "expected" || x.GetFrom() != 1_090_000 || x.GetTo() != 1_150_000 || x.GetText() != "it is expected to start in 1m30s to 2m30s, if no task of a higher priority becomes ready before" {
		t.Errorf("got %v", x)
	}
	got = sequencer.StartEstimate{Doubt: "few_samples", Task: fsm.TaskRef{Job: 1, Index: 1}}
	e, _ = r.explainTask(t, "a")
	if x := e.GetEstimate(); x.GetCode() != "few_samples" || x.GetFrom() != 0 || x.GetText() != "when it starts is unknown: fewer than 5 run times are known of tasks like 1/b" {
		t.Errorf("got %v", x)
	}
}

// The attempt of a worker that is down may still run until its lease ends. Then, only an at-most-once
// attempt that has started ends its task as lost.
func TestTheEndOfALeaseIsExplained(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := header("x")
	once := proto.CloneOf(h.GetPolicies()[0])
	once.Execution = dtaskv1.Execution_EXECUTION_AT_MOST_ONCE
	h.Policies = append(h.GetPolicies(), once)
	started, waiting := task("started"), task("waiting")
	started.Policy, waiting.Policy = 1, 1
	if _, err := r.send(t.Context(), request("k", h, task("limited"), started, waiting)); err != nil {
		t.Fatal(err)
	}
	w := r.worker(t)
	for i := range uint32(3) {
		r.assign(t, held(1, i, 1, w))
	}
	r.leader.op(t, &fsm.RecordStart{Items: []fsm.HeldAttempt{held(1, 1, 1, w)}})
	r.leader.explain = func(e *sequencer.Explanation) { e.LeaseUntil = 9_000_000 }
	again := "limit_lease: worker w1 is down and may still run the attempt, which counts towards its limits: the task is ready again at 1970-01-01 02:30:00Z"
	for name, want := range map[string]string{
		"limited": again, "waiting": again,
		"started": "lease: worker w1 is down and may still run the attempt: the task ends as lost at 1970-01-01 02:30:00Z",
	} {
		if _, got := r.explainTask(t, name); !strings.HasSuffix(got, "\n"+want) {
			t.Errorf("task %s: got\n%s\nwant at its end\n%s", name, got, want)
		}
	}
}

func TestTheNextStartThatARateAllowsIsExplained(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"))
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	r.leader.op(t, &fsm.SetLimit{Name: "api", LimitSettings: fsm.LimitSettings{Rate: 10, PeriodMS: 3_600_000, Burst: 1}, By: "x", AtMS: 1})
	r.leader.explain = func(e *sequencer.Explanation) {
		e.RateUntil = map[string]int64{"api": 9_000_000}
		e.Capacity = capacityOf(&sequencer.Capacity{EverFits: true, Limits: []sequencer.LimitLoad{{LimitLoad: scheduler.LimitLoad{Name: "api", Rated: true}}}})
	}
	if _, got := r.explainTask(t, "a"); got != "limit_rate: limit api lets 10/h start, and all of these have; the next one may start at 1970-01-01 02:30:00Z" {
		t.Errorf("got %s", got)
	}
}

// Of a worker to which a task is pinned and that is down, nothing is asked but that it returns, if
// nothing else could start there first and it had what the task needs.
func TestATaskWaitsForTheReturnOfTheWorkerToWhichItIsPinned(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := header("x")
	h.GetPolicies()[0].Require = map[string]string{"worker": "w3"}
	if _, err := r.send(t.Context(), request("k", h, task("a"))); err != nil {
		t.Fatal(err)
	}
	c := &sequencer.Capacity{Complete: true, Changes: []sequencer.StartChange{{Code: "add_worker", New: &sequencer.NewWorker{
		Slots: 2, Labels: []fsm.Label{{Key: "worker", Value: "w3"}}, Resources: []fsm.Resource{{Name: "cpu", Amount: 1000}},
	}}}}
	r.leader.explain = func(e *sequencer.Explanation) { e.Capacity = capacityOf(c) }
	joins := "worker w3 joins, with 2 slots, 1 cpu"
	check := func(when, code, want string) {
		t.Helper()
		e, _ := r.explainTask(t, "a")
		if x := e.GetChanges(); len(x) != 1 || x[0].GetCode() != code || x[0].GetText() != want {
			t.Errorf("%s: got %v, want %s: %s", when, x, code, want)
		}
	}
	check("an unknown worker", "add_worker", joins)
	fork, _ := r.machine.Fork()
	id := fork.NextWorker()
	register := func(slots uint32, cpu int64) {
		t.Helper()
		r.leader.op(t, &fsm.RegisterWorker{
			ID: id, Name: "w3", Incarnation: testInstance, Slots: slots, Version: "v", Address: "host",
			Labels: []fsm.Label{{Key: "worker", Value: "w3"}}, Resources: []fsm.Resource{{Name: "cpu", Amount: cpu}},
		})
		r.leader.op(t, &fsm.MarkWorkerDown{ID: id, Reason: "gone"})
	}
	register(1, 1000)
	check("too few slots", "add_worker", joins)
	register(2, 999)
	check("too little of a resource", "add_worker", joins)
	register(2, 1000)
	check("all that it needs", "connect_worker", "worker w3 connects again")
	c.Earlier = 1
	check("a task before it", "add_worker", joins)
	c.Earlier = 0
	r.leader.op(t, &fsm.DrainWorker{ID: id, Until: 9_000_000})
	check("a drained worker", "add_worker", joins)
}

// FuzzAPendingTaskHasAReason explains a pending task for anything that the leader may know.
func FuzzAPendingTaskHasAReason(f *testing.F) {
	f.Add(uint16(0), uint32(0), uint32(0), uint64(0), uint64(0))
	f.Add(uint16(0xffff), uint32(1), uint32(1), uint64(3), uint64(2))
	var once sync.Once
	var tasks *taskReader
	f.Fuzz(func(t *testing.T, facts uint16, limit, held uint32, higher, earlier uint64) {
		once.Do(func() {
			r := setup(t)
			r.submit(t, "x", task("a"))
			r.worker(t)
			var err error
			if tasks, _, err = r.openTasks("1"); err != nil {
				t.Fatal(err)
			}
		})
		is := func(i int) bool { return facts>>i&1 == 1 }
		c := &sequencer.Capacity{
			Higher: higher >> 2, Earlier: earlier >> 2, AtLeast: is(0), Limit: limit, Held: held, Fits: is(1), Starts: is(1) && is(2), EverFits: is(3), Complete: is(4),
		}
		if is(12) {
			c.QueuesAhead, c.OwnersAhead = earlier>>1, higher>>1
		}
		if is(5) {
			c.Groups = []sequencer.WorkerGroup{{Workers: []fsm.WorkerID{1}}}
		}
		soft := &sequencer.Explanation{State: fsm.Pending, Paused: is(6), Busy: is(7), NowMS: 1}
		if is(8) {
			soft.HeldUntil = 5
		}
		if is(9) {
			soft.QueueTimeout = 5
		}
		if !is(10) {
			soft.Capacity = capacityOf(c)
		}
		if is(11) {
			soft.State = fsm.Assigned // it has changed meanwhile
		}
		x := newExplainer(tasks, fsm.TaskRef{Job: 1}, soft, open)
		x.explain()
		if len(x.resp.GetReasons()) == 0 || x.resp.GetReasons()[0].GetText() == "" {
			t.Errorf("got %v", x.resp)
		}
	})
}
