package api

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// explainTask explains a task of job 1, and returns the codes and texts of its reasons.
func (r *replica) explainTask(t *testing.T, name string) (e *dtaskv1.ExplainResponse, reasons string) {
	t.Helper()
	e, err := r.jobs.Explain(t.Context(), &dtaskv1.ExplainRequest{Job: "1", Task: name})
	if err != nil {
		t.Fatalf("task %s: %v", name, err)
	}
	var lines []string
	for _, x := range e.GetReasons() {
		lines = append(lines, x.GetCode()+": "+x.GetText())
	}
	if len(lines) == 0 {
		t.Errorf("task %s has no reason", name)
	}
	return e, strings.Join(lines, "\n")
}

// capacityOf is a capacity that the leader knows.
func capacityOf(c *sequencer.Capacity) func(func(fsm.WorkerID) bool) *sequencer.Capacity {
	return func(func(fsm.WorkerID) bool) *sequencer.Capacity { return c }
}

// Each call copies a part of the leader's scheduler: any number of them at a time would stop the
// leader's work and use its memory.
func TestFewCallsOfExplainAreAnsweredAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.inAllStates(t)
		var entered atomic.Int32
		leave := make(chan struct{})
		r.leader.explain = func(*sequencer.Explanation) {
			entered.Add(1)
			<-leave
		}
		var asking sync.WaitGroup
		for range 2 * maxExplains {
			asking.Go(func() {
				if _, err := r.jobs.Explain(t.Context(), &dtaskv1.ExplainRequest{Job: "1", Task: "run"}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := entered.Load(); n != maxExplains {
			t.Errorf("%d are answered at a time, want %d", n, maxExplains)
		}
		close(leave)
		asking.Wait()
	})
}

func TestATaskInEachStateHasAReason(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.inAllStates(t)
	r.leader.explain = func(e *sequencer.Explanation) {
		if e.State == fsm.Assigned {
			e.Attached, e.Before = true, 2
			return
		}
		e.Capacity = capacityOf(&sequencer.Capacity{EverFits: true, Complete: true, Groups: []sequencer.WorkerGroup{{Workers: []fsm.WorkerID{1}, Obstacles: []sequencer.Obstacle{{Code: "no_free_slot", Want: 1, Total: 4}}}}})
	}
	for name, want := range map[string]string{
		"done":            "completed: attempt 1 completed",
		"run":             "no_free_capacity: no worker that could run it has a free slot with what it needs",
		"retry":           "retry_delay: attempt 2 starts no earlier than 1970-01-01 02:30:00Z: exit 1",
		"dead":            "retries_exhausted: retries exhausted after 1 attempt that failed or were lost: exit 1",
		"blocked-by-dead": "cancelled: cancelled: dependency dead failed\nfirst_cause: the first cause is task dead, dead: exit 1",
		"held":            "waits_at_worker: attempt 1 waits for a slot of worker w1; the number of attempts that must end before is 2",
		"running":         "running: attempt 1 runs on worker w1, 42 % done: half",
	} {
		if _, got := r.explainTask(t, name); got != want {
			t.Errorf("task %s: got\n%s\nwant\n%s", name, got, want)
		}
	}
	e, _ := r.explainTask(t, "run")
	if g := e.GetWorkers(); len(g) != 1 || g[0].GetWorkers() != 1 || g[0].GetNames()[0] != "w1" || g[0].GetObstacles()[0].GetText() != "no free slot of 4" || !e.GetComplete() {
		t.Errorf("got %v", e)
	}
}

func TestAPreemptionIsExplainedToBothTasks(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.inAllStates(t)
	r.leader.explain = func(e *sequencer.Explanation) {
		if e.State == fsm.Assigned {
			e.Attached, e.PreemptedBy = true, 1
			return
		}
		e.EndsOn, e.Ends = 1, 2
		e.Capacity = capacityOf(&sequencer.Capacity{EverFits: true, Complete: true, Groups: []sequencer.WorkerGroup{{Workers: []fsm.WorkerID{1}}}})
		e.Estimate = func(func(fsm.TaskRef) []time.Duration) sequencer.StartEstimate {
			t.Error("an estimate is made, although attempts are being stopped")
			return sequencer.StartEstimate{}
		}
	}
	for name, want := range map[string]string{
		"run": "takes_place: worker w1 is kept for it and stops 2 preemptible attempts\n" +
			"no_free_capacity: no worker that could run it has a free slot with what it needs",
		"running": "running: attempt 1 runs on worker w1, 42 % done: half\npreempted: it is being stopped: an urgent task of job 1 takes its place",
	} {
		if _, got := r.explainTask(t, name); got != want {
			t.Errorf("task %s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

func TestTheRootsOfABlockedTaskAreNamed(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := header("x")
	final := proto.CloneOf(h.GetPolicies()[0])
	final.Finally = true
	h.Policies = append(h.Policies, final)
	cleanup := task("cleanup")
	cleanup.Policy = 1
	if _, err := r.send(t.Context(), request("k", h, task("a"), task("b"), task("c", 0), task("d", 1, 2), cleanup)); err != nil {
		t.Fatal(err)
	}
	w := r.worker(t)
	r.assign(t, held(1, 0, 1, w))
	r.complete(t, held(1, 1, 1, w), "")
	if _, got := r.explainTask(t, "d"); got != "waits_for_task: it waits for task a, which is assigned: worker w1 has attempt 1 and has not reported its start" {
		t.Errorf("got %s", got)
	}
	if _, got := r.explainTask(t, "cleanup"); got != "waits_for_ordinary_tasks: a cleanup task: 3 of the 4 ordinary tasks of its job have not ended" {
		t.Errorf("got %s", got)
	}
}

func TestAJobThatNeedsAnotherIsExplained(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "first", task("a"))
	h := header("second")
	h.Needs = []*dtaskv1.JobNeed{{Job: 1, Condition: dtaskv1.Condition_CONDITION_ENDED}}
	if _, err := r.send(t.Context(), request("k", h, task("b"))); err != nil {
		t.Fatal(err)
	}
	e, err := r.jobs.Explain(t.Context(), &dtaskv1.ExplainRequest{Job: "2", Task: "b"})
	if err != nil || len(e.GetReasons()) != 1 || e.GetReasons()[0].GetText() != "its job needs job 1, which must end as ended" {
		t.Errorf("got %v, %v", e, err)
	}
}

// A change of the state is proposed only if it makes the task ready, and a worker has
// capacity for it.
func TestATaskThatWouldStartWhenRetriedSaysSo(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.inAllStates(t)
	fits := true
	r.leader.explain = func(e *sequencer.Explanation) {
		e.Capacity = capacityOf(&sequencer.Capacity{Fits: fits, Starts: fits, EverFits: true})
	}
	code := func(task string) string {
		e, _ := r.explainTask(t, task)
		if len(e.GetChanges()) == 0 {
			return ""
		}
		return e.GetChanges()[0].GetText()
	}
	if got := code("dead"); got != "retry it: dtaskctl retry 1/dead" {
		t.Errorf("dead task: got %q", got)
	}
	if got := code("blocked-by-dead"); got != "" {
		t.Errorf("a task whose dependency is dead can't run: got %q", got)
	}
	if got := code("done"); got != "" {
		t.Errorf("completed task: got %q", got)
	}
	if got := code("retry"); got != "" {
		t.Errorf("a retry delay can't be shortened: got %q", got)
	}
	if fits = false; code("dead") != "" {
		t.Error("a retried task without a worker does not start")
	}
}

func TestChangesOfSeveralWorkersAreOne(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"))
	for range 3 {
		r.worker(t)
	}
	slots := func(w fsm.WorkerID, n int64) sequencer.StartChange {
		return sequencer.StartChange{Code: "add_slots", Worker: w, Amount: n}
	}
	r.leader.explain = func(e *sequencer.Explanation) {
		e.QueueTimeout = 9_000_000
		e.Capacity = capacityOf(&sequencer.Capacity{
			Higher: 1, Earlier: 2, EverFits: true, Complete: true,
			Changes: []sequencer.StartChange{
				slots(1, 2), slots(2, 1), slots(3, 2),
				{Code: "lower_resource", Name: "memory", Amount: 6 << 30 * 1000},
				{Code: "add_worker", New: &sequencer.NewWorker{Slots: 4, Resources: []fsm.Resource{{Name: "gpu", Amount: 1500}}, Labels: []fsm.Label{{Key: fsm.SecretLabel, Value: "db"}}}},
			},
		})
	}
	e, reasons := r.explainTask(t, "a")
	if want := "no_worker: no worker is up\ntasks_ahead: at most 3 ready tasks before it, 1 of a higher priority\nqueue_timeout: its queue timeout ends at 1970-01-01 02:30:00Z"; reasons != want {
		t.Errorf("got\n%s\nwant\n%s", reasons, want)
	}
	var got []string
	for _, c := range e.GetChanges() {
		got = append(got, c.GetText())
	}
	want := []string{
		"worker w2 has 1 more slot", "any of the workers w1, w3 has 2 more slots",
		"it needs at most 6 GiB memory", "another worker joins, with 4 slots, 1.5 gpu, the secret db",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWhatIsBeforeATaskByShareIsCounted(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"))
	c := &sequencer.Capacity{EverFits: true, Complete: true, Earlier: 1, QueuesAhead: 2, OwnersAhead: 1, Groups: []sequencer.WorkerGroup{{Workers: []fsm.WorkerID{1}}}}
	r.leader.explain = func(e *sequencer.Explanation) { e.Capacity = capacityOf(c) }
	_, reasons := r.explainTask(t, "a")
	if want := "no_free_capacity: no worker that could run it has a free slot with what it needs\ntasks_ahead: at most 1 ready task before it\n" +
		"queues_ahead: before its queue by share: 2 other queues with ready tasks\nowners_ahead: before its owner by share: 1 other owner with ready tasks of its priority"; reasons != want {
		t.Errorf("got\n%s\nwant\n%s", reasons, want)
	}
	// Shares do not matter while something else holds it back.
	c.EverFits = false
	if _, reasons = r.explainTask(t, "a"); strings.Contains(reasons, "by share") {
		t.Errorf("got %s", reasons)
	}
}

func TestQuotaThatIsSavedForAnOlderTaskIsExplained(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("large"), task("small"))
	older := fsm.TaskRef{Job: 1}
	c := &sequencer.Capacity{EverFits: true, Queue: []sequencer.Obstacle{
		{Code: "queue_short", Name: "cpu", Value: "etl", Want: 1000, Free: -3000, Total: 4000, Saved: 4000, SavedFor: older},
		{Code: "queue_full", Value: "etl", Want: 1, Total: 6, Saved: 1, SavedFor: older},
		{Code: "queue_full", Value: "etl", Want: 1, Total: 6, Saved: 1, SavedFor: fsm.TaskRef{Job: 99}}, // which has left the state
	}}
	r.leader.explain = func(e *sequencer.Explanation) { e.Capacity = capacityOf(c) }
	_, reasons := r.explainTask(t, "small")
	if want := "queue_short: queue etl: 1 cpu needed, 0 left of its quota of 4, with 4 saved for 1/large\n" +
		"queue_full: queue etl has 5 running tasks of its quota of 6, with 1 saved for 1/large\n" +
		"queue_full: queue etl has 5 running tasks of its quota of 6, with 1 saved for an older task"; reasons != want {
		t.Errorf("got\n%s\nwant\n%s", reasons, want)
	}
}

// Of a task with alternatives, a quota is an obstacle of one of them at each worker.
func TestQuotaThatIsSavedIsExplainedForAnAlternative(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("large"), task("small"))
	c := &sequencer.Capacity{EverFits: true, Groups: []sequencer.WorkerGroup{{Workers: []fsm.WorkerID{1}, Obstacles: []sequencer.Obstacle{
		{Code: "queue_short", Name: "cpu", Value: "etl", Want: 1000, Free: -3000, Total: 4000, Saved: 4000, SavedFor: fsm.TaskRef{Job: 1}, Alternative: 1},
	}}}}
	r.leader.explain = func(e *sequencer.Explanation) { e.Capacity = capacityOf(c) }
	e, _ := r.explainTask(t, "small")
	if got, want := e.GetWorkers()[0].GetObstacles()[0].GetText(), "queue etl: 1 cpu needed, 0 left of its quota of 4, with 4 saved for 1/large (alternative 1)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A caller learns nothing about workers that serve none of its namespaces, not even their
// number.
func TestWorkersOfOtherNamespacesAreNotExplained(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	own := r.submitAs(t, "submitter", "own", "", task("a"))
	w := r.worker(t)
	fork, _ := r.machine.Fork()
	r.leader.op(t, &fsm.RegisterWorker{
		ID: fork.NextWorker(), Name: "secret", Incarnation: testInstance, Slots: 4, Version: "v", Address: "host",
		Labels: []fsm.Label{{Key: fsm.NamespaceLabel, Value: "elsewhere"}},
	})
	r.leader.explain = func(e *sequencer.Explanation) {
		e.Capacity = func(sees func(fsm.WorkerID) bool) *sequencer.Capacity {
			c := &sequencer.Capacity{EverFits: true, Complete: true, Groups: []sequencer.WorkerGroup{{Obstacles: []sequencer.Obstacle{{Code: "worker_drains"}}}}}
			for _, id := range []fsm.WorkerID{w, w + 1} {
				if sees(id) {
					c.Groups[0].Workers = append(c.Groups[0].Workers, id)
					c.Changes = append(c.Changes, sequencer.StartChange{Code: "undrain_worker", Worker: id})
				}
			}
			return c
		}
	}
	for name, want := range map[string]uint32{"reader": 1, "submitter": 1, "operator": 2, "admin": 2} {
		e, err := r.jobs.Explain(as(t.Context(), name), &dtaskv1.ExplainRequest{Job: formatJobID(own), Task: "a"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := e.GetWorkers()[0].GetWorkers(); got != want || e.GetChanges()[0].GetWorkers() != want || want == 1 && strings.Contains(e.String(), "secret") {
			t.Errorf("%s: got %v, want %d workers", name, e, want)
		}
	}
}

func TestWhatCannotBeExplainedIsAnError(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"))
	for _, q := range []*dtaskv1.ExplainRequest{{Job: "1", Task: "b"}, {Job: "2", Task: "a"}, {Job: "x", Task: "a"}, {Job: "2"}} {
		_, err := r.jobs.Explain(t.Context(), q)
		wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	}
	r.leading(false)
	r.raft.set(func(f *fakeRaft) { f.id, f.address, f.state = "n2", "n2:1", "follower" })
	_, err := r.jobs.Explain(t.Context(), &dtaskv1.ExplainRequest{Job: "1", Task: "a"})
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER)
}

// Every code that the sources have has a sentence and a row in the documentation, and there
// are no others.
func TestEachCodeOfAnExplanationIsDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/explain.md")
	if err != nil {
		t.Fatal(err)
	}
	known := slices.Collect(maps.Keys(reasonTexts))
	known = append(known, slices.Collect(maps.Keys(changeTexts))...)
	known = append(known, slices.Collect(maps.Keys(estimateTexts))...)
	for _, code := range known {
		if !strings.Contains(string(doc), "| `"+code+"` |") {
			t.Errorf("docs/explain.md has no row for %s", code)
		}
	}
	full, change := &dtaskv1.Reason{Value: "v", Detail: "d"}, &dtaskv1.StartChange{Workers: 1, Names: []string{"w1"}, Worker: &dtaskv1.WorkerOffer{}}
	for code, f := range reasonTexts {
		if f(full) == "" {
			t.Errorf("reason %s has no text", code)
		}
	}
	for code, f := range changeTexts {
		if f(change, "1/a") == "" {
			t.Errorf("change %s has no text", code)
		}
	}
	for code, f := range estimateTexts {
		if f(&dtaskv1.StartEstimate{}, 0) == "" {
			t.Errorf("estimate %s has no text", code)
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(string(doc), -1)
	for _, row := range rows {
		if !slices.Contains(known, row[1]) {
			t.Errorf("docs/explain.md has %s, which no answer has", row[1])
		}
	}
	for _, file := range []string{"explain.go", "explain_blocked.go", "explain_pending.go", "pending_reason.go", "explain_job.go", "explain_estimate.go", "../sequencer/capacity.go"} {
		source, err := os.ReadFile(file) //nolint:gosec // of the list above
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(string(source), "\n") {
			if !strings.Contains(line, "Code") {
				continue
			}
			for _, m := range regexp.MustCompile(`"([a-z]+_[a-z_]+)"`).FindAllStringSubmatch(line, -1) {
				if !slices.Contains(known, m[1]) {
					t.Errorf("%s: %s has no text", file, m[1])
				}
			}
		}
	}
}
