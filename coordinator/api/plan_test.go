package api

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// planRequest is the request for a plan of a job.
func planRequest(tb testing.TB, h *dtaskv1.JobHeader, tasks ...*dtaskv1.TaskSpec) *dtaskv1.PlanRequest {
	tb.Helper()
	o, err := spec.OutlineOf(&dtaskv1.JobSpec{Header: h, Tasks: tasks})
	if err != nil {
		tb.Fatal(err)
	}
	return &dtaskv1.PlanRequest{Header: h, Tasks: o.Tasks}
}

func (r *replica) plan(ctx context.Context, t *testing.T, h *dtaskv1.JobHeader, tasks ...*dtaskv1.TaskSpec) *dtaskv1.PlanResponse {
	t.Helper()
	got, err := r.jobs.Plan(ctx, planRequest(t, h, tasks...))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// expecting is a header whose tasks are expected to run for some milliseconds.
func expecting(name string, ms int64) *dtaskv1.JobHeader {
	h := header(name)
	h.GetPolicies()[0].ExpectMs = ms
	return h
}

func arrayOf(id string, n, maxParallel uint32) *dtaskv1.TaskSpec {
	t := task(id)
	t.Array = &dtaskv1.ArraySpec{Ranges: []*dtaskv1.ArrayRange{{Last: n - 1, Step: 1}}, MaxParallel: maxParallel}
	return t
}

// wholeRequest is request for a job with arrays.
func wholeRequest(key string, h *dtaskv1.JobHeader, tasks ...*dtaskv1.TaskSpec) *dtaskv1.JobPart {
	p := request(key, h, tasks...)
	p.Total = 0
	for _, t := range tasks {
		p.Total += uint32(array.Tasks(t))
	}
	return p
}

// boundsOf are the codes of the bounds, with their lower limits in milliseconds.
func boundsOf(p *dtaskv1.PlanResponse) string {
	var list []string
	for _, b := range p.GetBounds() {
		list = append(list, strings.TrimSpace(b.GetCode()+" "+b.GetName())+fmt.Sprint(" ", b.GetTime().GetLowMs()))
	}
	return strings.Join(list, ", ")
}

func TestAPlanSaysWhatAJobWouldWaitFor(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.worker(t) // 4 slots, 2 cpu, zone=eu
	for name, c := range map[string]struct {
		tasks    []*dtaskv1.TaskSpec
		change   func(*dtaskv1.TaskPolicy)
		makespan int64
		bounds   string
	}{
		"a chain":      {[]*dtaskv1.TaskSpec{task("a"), task("b", 0)}, nil, 2000, "critical_path 2000, slots 500"},
		"slots":        {[]*dtaskv1.TaskSpec{arrayOf("m", 10, 0)}, nil, 3000, "slots 2500, critical_path 1000"},
		"max_parallel": {[]*dtaskv1.TaskSpec{arrayOf("m", 10, 2)}, nil, 5000, "critical_path 5000, max_parallel m 5000, slots 2500"},
		"a resource": {
			[]*dtaskv1.TaskSpec{arrayOf("m", 10, 0)},
			func(p *dtaskv1.TaskPolicy) { p.Resources = map[string]int64{"cpu": 1000} },
			5000,
			"resource cpu 5000, slots 2500, critical_path 1000",
		},
	} {
		h := expecting("x", 1000)
		if c.change != nil {
			c.change(h.GetPolicies()[0])
		}
		p := r.plan(t.Context(), t, h, c.tasks...)
		if got := p.GetMakespan(); got.GetLowMs() != c.makespan || got.GetHighMs() != c.makespan || !got.GetBounded() {
			t.Errorf("%s: got the makespan %v, want %d", name, got, c.makespan)
		}
		if got := boundsOf(p); got != c.bounds {
			t.Errorf("%s: got %s, want %s", name, got, c.bounds)
		}
	}
	// The quotas of a queue.
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	r.leader.op(t, &fsm.SetQueue{Name: "etl", QueueSettings: fsm.QueueSettings{Weight: 1, MaxRunning: 3, Max: []fsm.Resource{{Name: "cpu", Amount: 1000}}}, AtMS: 1})
	queued := expecting("x", 1000)
	queued.Queue = "etl"
	queued.GetPolicies()[0].Resources = map[string]int64{"cpu": 500}
	p := r.plan(t.Context(), t, queued, arrayOf("m", 12, 0))
	if got, want := boundsOf(p), "queue_resource cpu 6000, queue etl 4000, slots 3000, resource cpu 3000, critical_path 1000"; got != want || p.GetClasses()[0].GetAtOnce() != 2 {
		t.Errorf("got %s, want %s; %v", got, want, p.GetClasses())
	}
	// Named limits: what runs at once, and what may start.
	for name, c := range map[string]struct {
		limit    fsm.LimitSettings
		makespan int64
		atOnce   uint64
		bounds   string
	}{
		"running":          {fsm.LimitSettings{Running: 2}, 6000, 2, "limit db 6000, slots 3000, critical_path 1000"},
		"a rate":           {fsm.LimitSettings{Rate: 1, PeriodMS: 2000, Burst: 2}, 21000, 4, "limit db 21000, slots 3000, critical_path 1000"},
		"a large burst":    {fsm.LimitSettings{Rate: 1, PeriodMS: 60_000, Burst: 12}, 3000, 4, "slots 3000, critical_path 1000"},
		"more than needed": {fsm.LimitSettings{Running: 1000}, 3000, 4, "slots 3000, critical_path 1000, limit db 12"},
	} {
		r.leader.op(t, &fsm.SetLimit{Name: "db", LimitSettings: c.limit, By: "x", AtMS: 1})
		using := expecting("x", 1000)
		using.GetPolicies()[0].Uses = []string{"db"}
		p = r.plan(t.Context(), t, using, arrayOf("m", 12, 0))
		if got := boundsOf(p); got != c.bounds || p.GetMakespan().GetLowMs() != c.makespan {
			t.Errorf("a limit with %s: got %s and the makespan %v, want %s and %d", name, got, p.GetMakespan(), c.bounds, c.makespan)
		}
		if x := p.GetClasses()[0]; x.GetAtOnce() != c.atOnce || !slices.Equal(x.GetUses(), []string{"db"}) {
			t.Errorf("a limit with %s: got the class %v, want %d at once", name, x, c.atOnce)
		}
	}
	// The whole fleet and the worker that fits.
	fork, _ := r.machine.Fork()
	r.leader.op(t, &fsm.RegisterWorker{ID: fork.NextWorker(), Name: "other", Incarnation: testInstance, Slots: 12})
	h := expecting("x", 1000)
	h.GetPolicies()[0].Require = map[string]string{"zone": "eu"}
	p = r.plan(t.Context(), t, h, arrayOf("m", 10, 0))
	if got := boundsOf(p); got != "workers m 2500, critical_path 1000, slots 625" || p.GetWorkers() != 2 || p.GetSlots() != 16 {
		t.Errorf("got %s on %d workers with %d slots", got, p.GetWorkers(), p.GetSlots())
	}
	if c := p.GetClasses()[0]; c.GetTask() != "m" || c.GetTasks() != 10 || c.GetWorkers() != 1 || c.GetAtOnce() != 4 || c.GetType() != "noop" || c.GetRequire()["zone"] != "eu" {
		t.Errorf("got %v", c)
	}
}

func TestTheBoundOfALimitIsAboutTheTasksThatUseIt(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	r.worker(t) // 4 slots
	r.leader.op(t, &fsm.SetLimit{Name: "api", LimitSettings: fsm.LimitSettings{Running: 3}, By: "x", AtMS: 1}, &fsm.SetLimit{Name: "db", LimitSettings: fsm.LimitSettings{Running: 2}, By: "x", AtMS: 1})
	h := expecting("x", 1000)
	for range 2 {
		h.Policies = append(h.Policies, proto.CloneOf(h.GetPolicies()[0]))
	}
	h.GetPolicies()[0].Uses, h.GetPolicies()[1].Uses = []string{"api", "db"}, []string{"api"}
	both, api, none := arrayOf("both", 4, 0), arrayOf("api", 5, 0), arrayOf("none", 8, 0)
	api.Policy, none.Policy = 1, 2
	p := r.plan(t.Context(), t, h, both, api, none)
	if got, want := boundsOf(p), "slots 4250, limit api 3000, limit db 2000, critical_path 1000"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var atOnce []string
	for _, c := range p.GetClasses() {
		atOnce = append(atOnce, fmt.Sprint(c.GetTask(), c.GetUses(), c.GetAtOnce()))
	}
	if want := []string{"none[] 4", "api[api] 3", "both[api db] 2"}; !slices.Equal(atOnce, want) {
		t.Errorf("got %v, want %v", atOnce, want)
	}
}

func TestAPlanCountsWorkersThatGetTasksOfTheJob(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.raise(t)
	for i, w := range []fsm.RegisterWorker{
		{Slots: 1}, {Slots: 2, Labels: []fsm.Label{{Key: fsm.NamespaceLabel, Value: "etl"}}}, {Slots: 4, Labels: []fsm.Label{{Key: fsm.NamespaceLabel, Value: "ml"}}}, {Slots: 8}, {Slots: 16},
	} {
		w.ID, w.Name, w.Incarnation = fsm.WorkerID(i+1), fmt.Sprint("w", i), testInstance
		r.leader.op(t, &w)
	}
	r.leader.op(t, &fsm.DrainWorker{ID: 4, Until: 9_000_000}, &fsm.MarkWorkerDown{ID: 5})
	r.submit(t, "running", task("a"))
	r.assign(t, held(1, 0, 1, 1))
	h := header("x")
	h.Namespace = "etl"
	if p := r.plan(t.Context(), t, h, task("a")); p.GetWorkers() != 2 || p.GetSlots() != 3 || p.GetSlotsInUse() != 1 {
		t.Errorf("got %d workers with %d slots, %d in use", p.GetWorkers(), p.GetSlots(), p.GetSlotsInUse())
	}
}

func TestTasksThatFitNoWorkerComeFirstWithTheReason(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := expecting("x", 1000)
	h.Policies = append(h.Policies, proto.CloneOf(h.GetPolicies()[0]))
	h.GetPolicies()[1].Resources = map[string]int64{"gpu": 8000}
	rare := task("rare", 0)
	rare.Policy = 1
	if p := r.plan(t.Context(), t, h, task("a"), rare); p.GetClasses()[0].GetReason() != "no worker is up" || p.GetMakespan() != nil {
		t.Errorf("without workers: got %v", p)
	}
	r.worker(t)
	p := r.plan(t.Context(), t, h, arrayOf("many", 9, 0), rare)
	if c := p.GetClasses()[0]; c.GetTask() != "rare" || c.GetWorkers() != 0 || c.GetReason() != "no worker that is up has 8 gpu" {
		t.Errorf("got %v", p.GetClasses())
	}
	if p.GetMakespan() != nil || len(p.GetBounds()) > 0 || p.GetClasses()[1].GetWorkers() != 1 {
		t.Errorf("got %v", p)
	}
}

func TestTheExampleOfAPlanTakesAsLongAsItExpects(t *testing.T) {
	t.Parallel()
	const path = "../../examples/plan.yaml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	job, err := spec.Parse(path, text, spec.Options{Unfilled: true})
	if err != nil {
		t.Fatal(err)
	}
	r := setup(t)
	r.worker(t)
	p := r.plan(t.Context(), t, job.GetHeader(), job.GetTasks()...)
	if want := "critical_path 230, max_parallel part 100"; p.GetMakespan().GetHighMs() != 230 || !strings.HasPrefix(boundsOf(p), "critical_path 230") || !strings.Contains(boundsOf(p), "max_parallel part 100") {
		t.Errorf("got %v and %s, want 230 ms and %s", p.GetMakespan(), boundsOf(p), want)
	}
}

// Run times are the quantiles of earlier runs, in the state and in history. With less than
// five, the job file's expectation counts, and without one, nothing is known.
func TestRunTimesAreThoseOfEarlierRuns(t *testing.T) {
	t.Parallel()
	_, change := withHistory(t, false, nil)
	r := setup(t, change)
	w := r.worker(t)
	run := func(key, owner string, ms ...uint32) {
		t.Helper()
		x := header("etl")
		x.Owner = owner
		stored, err := r.send(t.Context(), wholeRequest(key, x, arrayOf("m", uint32(len(ms)), 0), task("once", 0)))
		if err != nil {
			t.Fatal(err)
		}
		id, err := parseJobID(stored.GetId())
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range append(ms, 7) {
			at := held(id, uint32(i), 1, w)
			if got := r.leader.do(func(d2 *fsm.EntryBuilder) fsm.Reason {
				if refused := d2.Assign(fsm.AssignItem(at)); refused != fsm.Accepted {
					return refused
				}
				return d2.Complete(fsm.CompleteItem{HeldAttempt: at, DurationMS: d})
			}); got != fsm.Accepted {
				t.Fatal(got)
			}
		}
	}
	run("k1", "me", 100, 300, 200)
	run("k2", "me", 500, 400)
	run("k3", "someone", 9000, 9000, 9000, 9000, 9000)
	planned := expecting("etl", 60)
	planned.Owner = "me"
	planned.Policies = append(planned.Policies, proto.CloneOf(planned.GetPolicies()[0]))
	planned.GetPolicies()[1].ExpectMs = 0
	unknown := task("unknown")
	unknown.Policy = 1
	check := func(when string) {
		t.Helper()
		p := r.plan(t.Context(), t, proto.CloneOf(planned), arrayOf("m", 2, 0), task("once", 0), unknown)
		if !slices.Equal(p.GetLowMs(), []int64{300, 60, 0}) || !slices.Equal(p.GetHighMs(), []int64{500, 60, 0}) || !slices.Equal(p.GetSamples(), []uint32{5, 0, 0}) {
			t.Errorf("%s: got %v to %v from %v", when, p.GetLowMs(), p.GetHighMs(), p.GetSamples())
		}
		if p.GetRuns() != 2 || p.GetLastJob() != "2" {
			t.Errorf("%s: got %d runs, the last is %s", when, p.GetRuns(), p.GetLastJob())
		}
		if m := p.GetMakespan(); m.GetBounded() || m.GetLowMs() != 360 || len(p.GetBounds()) != 0 {
			t.Errorf("%s: got the makespan %v and bounds %v although a run time is unknown", when, m, p.GetBounds())
		}
	}
	check("in the state")
	r.leader.op(t, &fsm.Archive{Items: []fsm.JobID{1, 2, 3}})
	check("in the history")
}

func TestAPlanNamesWhatHasChangedSinceTheLastJob(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.worker(t)
	old := header("etl")
	old.Policies = append(old.Policies, proto.CloneOf(old.GetPolicies()[0]))
	old.GetPolicies()[1].TimeoutMs = 9000
	second := task("second", 0)
	second.Policy = 1
	if _, err := r.send(t.Context(), wholeRequest("k", old, task("first"), second, arrayOf("m", 3, 0), task("gone"))); err != nil {
		t.Fatal(err)
	}
	p := r.plan(t.Context(), t, header("etl"), task("first"), task("second", 0), arrayOf("m", 4, 0), task("new"))
	var got []string
	for _, c := range p.GetChanges() {
		got = append(got, fmt.Sprint(c.GetTask(), " ", c.GetKind(), c.GetFields()))
	}
	want := []string{"second changed[timeout]", "m changed[array]", "new added[]", "gone removed[]"}
	if !slices.Equal(got, want) || p.GetLastJob() != "1" || p.GetChangesTotal() != 4 {
		t.Errorf("got %v since job %s, want %v", got, p.GetLastJob(), want)
	}
	// Defaults are filled in before: a field that the new file leaves out has not changed.
	if p = r.plan(t.Context(), t, old, task("first"), second, arrayOf("m", 3, 0), task("gone")); p.GetChangesTotal() != 0 {
		t.Errorf("the same job: got %v", p.GetChanges())
	}
}

func TestAPlanIsForNamespacesOfTheCaller(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	r.worker(t)
	r.submitAs(t, "ml", "nightly", "ml", task("a"))
	h := header("nightly")
	h.Namespace = "ml"
	_, err := r.jobs.Plan(as(t.Context(), "submitter"), planRequest(t, h, task("a")))
	wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	if p := r.plan(as(t.Context(), "submitter"), t, header("nightly"), task("a")); p.GetLastJob() != "" || p.GetRuns() != 0 {
		t.Errorf("got %v of another namespace", p)
	}
	if p := r.plan(as(t.Context(), "ml"), t, header("nightly"), task("a")); p.GetLastJob() == "" {
		t.Errorf("got %v without the last job of the caller", p)
	}
	_, err = r.jobs.Plan(as(t.Context(), "none"), planRequest(t, header("x"), task("a")))
	wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
}

// A job without an owner has no earlier runs in common with those of somebody.
func TestAPlanWithoutAnOwnerIgnoresTheJobsOfOwners(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.worker(t)
	h := header("nightly")
	h.Owner = "alice"
	if _, err := r.send(t.Context(), request("k", h, task("a"))); err != nil {
		t.Fatal(err)
	}
	if p := r.plan(t.Context(), t, header("nightly"), task("a")); p.GetLastJob() != "" || p.GetRuns() != 0 {
		t.Errorf("got %d runs, the last is %s", p.GetRuns(), p.GetLastJob())
	}
}

func TestAnInvalidPlanIsRefused(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for name, q := range map[string]*dtaskv1.PlanRequest{
		"no header":        {Tasks: []*dtaskv1.PlanTask{{Id: "a"}}},
		"no tasks":         {Header: header("x")},
		"no name":          {Header: header(""), Tasks: []*dtaskv1.PlanTask{{Id: "a"}}},
		"a later need":     {Header: header("x"), Tasks: []*dtaskv1.PlanTask{{Id: "a", Dependencies: []uint32{1}}, {Id: "b"}}},
		"too many tasks":   {Header: header("x"), Tasks: []*dtaskv1.PlanTask{{Id: "a", Tasks: 1 << 31}, {Id: "b", Tasks: 1 << 31}}},
		"a missing policy": {Header: header("x"), Tasks: []*dtaskv1.PlanTask{{Id: "a", Policy: 7}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := r.jobs.Plan(t.Context(), q)
			wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
		})
	}
}

func TestAPlanOfAJobWithAnUnknownQueueOrLimitFailsAsItsSubmission(t *testing.T) {
	t.Parallel()
	r := withLimits(t)
	r.leader.op(t, &fsm.SetQueue{Name: "etl", QueueSettings: fsm.QueueSettings{Weight: 1}, AtMS: 1})
	for name, c := range map[string]struct {
		queue, use, want string // want is empty for known names
	}{
		"known":            {"etl", "tenant/acme", ""},
		"an unknown queue": {"elt", "db", `job.queue: unknown queue "elt"; did you mean "etl"?`},
		"an unknown limit": {"etl", "tenants/acme", `uses: unknown limit "tenants/*", which "tenants/acme" needs; did you mean "tenant/*"?`},
	} {
		h := header("x")
		h.Queue, h.Policies = c.queue, []*dtaskv1.TaskPolicy{using(c.use)}
		_, submitted := r.send(t.Context(), request(name, proto.CloneOf(h), task("a")))
		for _, fitOnly := range []bool{false, true} {
			q := planRequest(t, proto.CloneOf(h), task("a"))
			q.FitOnly = fitOnly
			_, err := r.jobs.Plan(t.Context(), q)
			if got := strings.Join(detailOf(err).GetFaults(), "\n"); got != c.want || fmt.Sprint(err) != fmt.Sprint(submitted) {
				t.Errorf("%s, fit only %t: got %v: %q; submitted: %v", name, fitOnly, err, got, submitted)
			}
		}
	}
}

func TestAPlanWithAQueueIsRefusedBelowTheLevelOfQueues(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := header("x")
	h.Queue = "default"
	_, err := r.jobs.Plan(t.Context(), planRequest(t, h, task("a")))
	wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
}

// Only a caller that asks for dependencies needs to know what waits for all ordinary tasks.
func TestTasksThatAreListedWithDependenciesSayWhetherTheyCleanUp(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := header("x")
	h.Policies = append(h.Policies, proto.CloneOf(h.GetPolicies()[0]))
	h.GetPolicies()[1].Finally = true
	final := task("c")
	final.Policy = 1
	if _, err := r.send(t.Context(), request("k", h, task("a"), final)); err != nil {
		t.Fatal(err)
	}
	for _, with := range []bool{false, true} {
		pages, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1", WithDependencies: with})
		if err != nil {
			t.Fatal(err)
		}
		if list := pages[0].GetTasks(); list[0].GetFinally() || list[1].GetFinally() != with {
			t.Errorf("with dependencies %t: got %v", with, list)
		}
	}
}

func TestTheListsOfAPlanAreCounted(t *testing.T) {
	t.Parallel()
	p := &plan{
		byClass: map[uint32]*dtaskv1.PlanClass{0: {}}, resp: &dtaskv1.PlanResponse{Workers: 10},
		tasks: []*dtaskv1.PlanTask{{Tasks: 5, MaxParallel: 2}, {Tasks: 5, MaxParallel: 5}, {Tasks: 5}, {}},
	}
	if got := p.lists(); got != 20 {
		t.Errorf("got %d, want one for the demand and one for the limit, of 10 workers each", got)
	}
}

// BenchmarkPlan plans 100,000 tasks with two dependencies each, on 100 workers, without
// earlier runs.
func BenchmarkPlan(b *testing.B) {
	const n, width = 100_000, 1000
	m := fsm.NewMachine()
	cfg := baseConfig(m)
	cfg.Leader, cfg.Raft = func() Leader { return nil }, func() Raft { return &fakeRaft{} }
	s, err := NewServer(cfg)
	if err != nil {
		b.Fatal(err)
	}
	fork, _ := m.Fork()
	d := fsm.NewEntryBuilder(fork, 1, &fsm.Effects{})
	for i := range 100 {
		d.Do(&fsm.RegisterWorker{ID: fsm.WorkerID(i + 1), Name: fmt.Sprint("w", i), Incarnation: testInstance, Slots: 8})
	}
	entry, _, _ := d.Finish()
	m.Apply(1, fsm.Encode(nil, entry))
	tasks := make([]*dtaskv1.TaskSpec, n)
	for i := range tasks {
		tasks[i] = task(fmt.Sprintf("t%06d", i))
		if i > width {
			tasks[i].Dependencies = []uint32{uint32(i - width - 1), uint32(i - width)}
		}
	}
	q := planRequest(b, expecting("x", 1000), tasks...)
	j := &jobs{Server: s}
	ctx := auth.NewContext(b.Context(), open)
	b.ReportAllocs()
	for b.Loop() {
		if p, err := j.Plan(ctx, q); err != nil || p.GetMakespan().GetHighMs() == 0 {
			b.Fatal(p.GetMakespan(), err)
		}
	}
}
