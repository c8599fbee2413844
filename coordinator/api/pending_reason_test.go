package api

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

func TestAPendingTaskSaysWhyNoWorkerCanRunIt(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := header("x")
	policy := func(change func(*dtaskv1.TaskPolicy)) uint32 {
		p := proto.CloneOf(h.GetPolicies()[0])
		change(p)
		h.Policies = append(h.Policies, p)
		return uint32(len(h.GetPolicies()) - 1)
	}
	command := task("command")
	command.Body.Run, command.Policy = "true", policy(func(p *dtaskv1.TaskPolicy) { p.Type = "" })
	zone := task("zone")
	zone.Policy = policy(func(p *dtaskv1.TaskPolicy) { p.Require = map[string]string{"zone": "us"} })
	cpu := task("cpu")
	cpu.Policy = policy(func(p *dtaskv1.TaskPolicy) { p.Resources = map[string]int64{"cpu": 2500} })
	fits := task("fits")
	fits.Policy = policy(func(p *dtaskv1.TaskPolicy) {
		p.Require, p.Resources = map[string]string{"zone": "eu"}, map[string]int64{"cpu": 2000}
	})
	if _, err := r.send(t.Context(), request("k", h, task("noop"), command, zone, cpu, fits, task("later", 0))); err != nil {
		t.Fatal(err)
	}
	register := func(name string, change func(*fsm.RegisterWorker)) {
		t.Helper()
		fork, _ := r.machine.Fork()
		op := &fsm.RegisterWorker{ID: fork.NextWorker(), Name: name, Incarnation: testInstance, Slots: 4, Version: "v", Address: "host"}
		change(op)
		r.leader.op(t, op)
	}
	check := func(when string, want map[string]string) {
		t.Helper()
		pages, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1"})
		if err != nil {
			t.Fatal(err)
		}
		for _, shown := range pages[0].GetTasks() {
			if got := shown.GetPendingReason(); got != want[shown.GetId()] {
				t.Errorf("%s, task %s: got %q, want %q", when, shown.GetId(), got, want[shown.GetId()])
			}
		}
	}
	none := "no worker is up"
	check("without workers", map[string]string{"noop": none, "command": none, "zone": none, "cpu": none, "fits": none})

	types := func(names ...string) []fsm.Label {
		var list []fsm.Label
		for _, name := range names {
			list = append(list, fsm.Label{Key: fsm.TypeLabel, Value: name})
		}
		return list
	}
	register("other", func(w *fsm.RegisterWorker) { w.Labels = types("prime") })
	noType := `no worker that is up handles tasks of type "noop"`
	check("with a worker of another type", map[string]string{
		"noop": noType, "zone": noType, "cpu": noType, "fits": noType, "command": "no worker that is up runs commands",
	})

	register("noop", func(w *fsm.RegisterWorker) {
		w.Labels = append(types("noop"), fsm.Label{Key: "zone", Value: "eu"})
		w.Resources = []fsm.Resource{{Name: "cpu", Amount: 2000}}
	})
	check("with a worker of the type", map[string]string{
		"zone":    "no worker that fulfills the other requirements has the label zone=us",
		"cpu":     "no worker that fulfills the other requirements has 2.5 cpu",
		"command": "no worker that is up runs commands",
	})

	register("earlier", func(*fsm.RegisterWorker) {}) // announces nothing: it gets all types
	check("with a worker of an earlier version", map[string]string{
		"zone": "no worker that fulfills the other requirements has the label zone=us",
		"cpu":  "no worker that fulfills the other requirements has 2.5 cpu",
	})
	for id := range fsm.WorkerID(3) {
		r.leader.op(t, &fsm.DrainWorker{ID: id + 1, Until: 9_000_000})
	}
	drains := "all workers that could run it drain"
	check("while all workers drain", map[string]string{
		"zone": "no worker that fulfills the other requirements has the label zone=us", "noop": drains, "command": drains, "fits": drains,
		"cpu": "no worker that fulfills the other requirements has 2.5 cpu",
	})
}

func TestATaskWhoseSecretNoWorkerHasNamesIt(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := header("x")
	h.GetPolicies()[0].Secrets = []string{"db", "key"}
	if _, err := r.send(t.Context(), request("k", h, task("named"))); err != nil {
		t.Fatal(err)
	}
	check := func(want string, labels ...fsm.Label) {
		t.Helper()
		if got := r.reasonWith(t, labels...); got != want {
			t.Errorf("with %v: got %q, want %q", labels, got, want)
		}
	}
	check("no worker that is up has the secret db")
	check("no worker that fulfills the other requirements has the secret key", fsm.Label{Key: fsm.SecretLabel, Value: "db"})
	check("", fsm.Label{Key: fsm.SecretLabel, Value: "db"}, fsm.Label{Key: fsm.SecretLabel, Value: "key"})
}

// reasonWith registers a worker with labels, and returns why the first task of job 1 waits.
func (r *replica) reasonWith(t *testing.T, labels ...fsm.Label) string {
	t.Helper()
	fork, _ := r.machine.Fork()
	id := fork.NextWorker()
	r.leader.op(t, &fsm.RegisterWorker{ID: id, Name: fmt.Sprint("w", id), Incarnation: testInstance, Slots: 4, Labels: labels, Version: "v", Address: "host"})
	pages, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1"})
	if err != nil {
		t.Fatal(err)
	}
	return pages[0].GetTasks()[0].GetPendingReason()
}

// A task that needs more of a resource than a quota of its queue never starts, whatever the load.
// Status, explain and plan report it.
func TestATaskThatNeedsMoreThanAQuotaOfItsQueueNamesIt(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	for i := range 2 {
		r.leader.op(t, &fsm.RegisterWorker{
			ID: fsm.WorkerID(i + 1), Name: fmt.Sprint("w", i), Incarnation: testInstance, Slots: 4, Version: "v", Address: "host",
			Resources: []fsm.Resource{{Name: "cpu", Amount: 4000}, {Name: "gpu", Amount: int64(1 + i*1000)}},
		})
	}
	r.leader.op(t, &fsm.SetQueue{Name: "etl", QueueSettings: fsm.QueueSettings{Weight: 1, Max: []fsm.Resource{{Name: "cpu", Amount: 2000}}}, AtMS: 1})
	r.leader.explain = func(e *sequencer.Explanation) {
		e.Capacity = capacityOf(&sequencer.Capacity{EverFits: true, Queue: []sequencer.Obstacle{{Code: "queue_short", Name: "cpu", Value: "etl", Want: 3000, Free: 500, Total: 2000}}})
		e.Estimate = func(func(fsm.TaskRef) []time.Duration) sequencer.StartEstimate {
			return sequencer.StartEstimate{Doubt: "few_samples"}
		}
	}
	cpu, gpu, tpu := map[string]int64{"cpu": 3000}, map[string]int64{"gpu": 1000}, map[string]int64{"tpu": 1000}
	short := "queue etl has a quota of 2 cpu, and 3 cpu are needed"
	for name, c := range map[string]struct {
		resources    map[string]int64
		alternatives []*dtaskv1.ResourceList
		want         string
	}{
		"as much as the quota":        {map[string]int64{"cpu": 2000}, nil, ""},
		"more than the quota":         {cpu, nil, short},
		"more than a worker":          {map[string]int64{"cpu": 5000}, nil, "no worker that is up has 5 cpu"},
		"an alternative within":       {cpu, []*dtaskv1.ResourceList{{Resources: gpu}}, ""},
		"an alternative of no worker": {tpu, []*dtaskv1.ResourceList{{Resources: cpu}}, short + " (alternative 2)"},
	} {
		h := expecting("x", 1000)
		h.Queue = "etl"
		h.GetPolicies()[0].Resources, h.GetPolicies()[0].Alternatives = c.resources, c.alternatives
		job, err := r.send(t.Context(), request(name, proto.CloneOf(h), task("a")))
		if err != nil {
			t.Fatal(err)
		}
		pages, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: job.GetId()})
		if err != nil {
			t.Fatal(err)
		}
		if got := pages[0].GetTasks()[0].GetPendingReason(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		class := r.plan(t.Context(), t, h, task("a")).GetClasses()[0]
		if class.GetReason() != c.want || (class.GetAtOnce() == 0) != (c.want != "") {
			t.Errorf("%s: got the class %v, want %q", name, class, c.want)
		}
		if c.want != short {
			continue
		}
		e, err := r.jobs.Explain(t.Context(), &dtaskv1.ExplainRequest{Job: job.GetId(), Task: "a"})
		if want := "queue etl: 3 cpu needed, and its quota is 2: it never starts"; err != nil || e.GetReasons()[0].GetText() != want {
			t.Errorf("got %v, %v, want %q", e.GetReasons(), err, want)
		}
		if e.GetEstimate() != nil {
			t.Errorf("a start that never comes is estimated: %v", e.GetEstimate())
		}
	}
}

// Only the coordinators make the labels of types, secrets and namespaces: for the scheduler, no
// worker has them. A queue that was set before such labels were refused may still require one.
func TestNoWorkerHasALabelOfTheCoordinatorsThatAQueueRequires(t *testing.T) {
	t.Parallel()
	r := setup(t)
	label := fsm.Label{Key: fsm.SecretLabel, Value: "db"}
	settings := fsm.QueueSettings{Weight: 1, Require: []fsm.Label{label}}
	r.leader.op(t, &fsm.SetLevel{Level: fsm.OpLevel(&fsm.SetQueue{})}, &fsm.SetQueue{Name: "etl", QueueSettings: settings, AtMS: 1})
	h := header("x")
	h.Queue = "etl"
	if _, err := r.send(t.Context(), request("k", h, task("a"))); err != nil {
		t.Fatal(err)
	}
	want := "no worker that is up has the label dtask.secret=db, which queue etl requires"
	if got := r.reasonWith(t, label); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A task or a queue that requires a label of the coordinators would wait forever.
func TestALabelOfTheCoordinatorsCanNotBeRequired(t *testing.T) {
	t.Parallel()
	for _, key := range []string{fsm.TypeLabel, fsm.SecretLabel, fsm.NamespaceLabel, fsm.ReservedLabel} {
		if err := spec.CheckQueue("etl", &dtaskv1.QueueSettings{Require: map[string]string{key: "x"}}); err == nil {
			t.Errorf("a queue requires the label %s", key)
		}
		for _, spoil := range []func(p *dtaskv1.TaskPolicy){
			func(p *dtaskv1.TaskPolicy) { p.Require = map[string]string{key: "x"} },
			func(p *dtaskv1.TaskPolicy) { p.Rules = []*dtaskv1.LabelRule{{Name: key}} },
		} {
			h := header("x")
			spoil(h.GetPolicies()[0])
			_, err := setup(t).send(t.Context(), request("k", h, task("a")))
			wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
		}
	}
}

// The other requirements are mentioned only if they exclude a worker.
func TestARequirementThatNoWorkerMeetsIsNamedAlone(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := header("x")
	h.GetPolicies()[0].Resources = map[string]int64{"gpu": 3000}
	if _, err := r.send(t.Context(), request("k", h, task("big"))); err != nil {
		t.Fatal(err)
	}
	fork, _ := r.machine.Fork()
	r.leader.op(t, &fsm.RegisterWorker{ID: fork.NextWorker(), Name: "w", Incarnation: testInstance, Slots: 4, Version: "v", Address: "host"})
	pages, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := pages[0].GetTasks()[0].GetPendingReason(), "no worker that is up has 3 gpu"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAPendingTaskNamesTheRuleThatNoWorkerFulfills(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.leader.op(t, &fsm.RegisterWorker{ID: 1, Name: "w1", Incarnation: testInstance, Slots: 4, Labels: []fsm.Label{{Key: "zone", Value: "eu"}}, Version: "v", Address: "host"})
	for want, x := range map[string]*dtaskv1.LabelRule{
		"no worker that is up has the label zone=ap or zone=us": {Name: "zone", Values: []string{"ap", "us"}},
		"no worker that is up lacks the label zone=eu":          {Name: "zone", Values: []string{"eu"}, Not: true},
		"no worker that is up has the label rack":               {Name: "rack"},
		"no worker that is up has the label " + fsm.SecretLabel: {Name: fsm.SecretLabel},
		"": {Name: "rack", Values: []string{"7"}, Not: true},
	} {
		var got string
		r.machine.Read(func(st *fsm.State, _ uint64) {
			got = unmetDemand(st, &dtaskv1.JobHeader{}, &dtaskv1.TaskPolicy{Type: "noop", Rules: []*dtaskv1.LabelRule{x}}, anyWorker).GetDetail()
		})
		if got != want {
			t.Errorf("%v: got %q, want %q", x, got, want)
		}
	}
}

// A replica of an earlier version would run such tasks anywhere.
func TestPlacementRequiresItsFeatureLevel(t *testing.T) {
	t.Parallel()
	r := setup(t)
	zone := []*dtaskv1.LabelRule{{Name: "zone", Values: []string{"eu"}, Not: true}}
	send := func(x *dtaskv1.TaskPolicy) error {
		h := header("placed")
		h.Policies[0].Rules, h.Policies[0].Prefer, h.Policies[0].Place, h.Policies[0].Affinity = x.GetRules(), x.GetPrefer(), x.GetPlace(), x.GetAffinity()
		_, err := r.send(t.Context(), request("k"+x.String(), h, task("a")))
		return err
	}
	policies := []*dtaskv1.TaskPolicy{{Rules: zone}, {Prefer: zone}, {Place: dtaskv1.PlacementStrategy_PLACEMENT_STRATEGY_PACK}, {Affinity: "ann"}}
	for _, x := range policies {
		if err := send(x); err == nil || !strings.Contains(err.Error(), "rules about labels, prefer, place, affinity and alternatives of resources require 3: finish the upgrade") {
			t.Errorf("%v, below the level: got %v", x, err)
		}
	}
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	for _, x := range policies {
		if err := send(x); err != nil {
			t.Errorf("%v, at the level: got %v", x, err)
		}
	}
}

// What no worker has is in the text of the answer, and in fields for programs.
func TestTheDemandThatNoWorkerFulfillsIsExplained(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for i, gpus := range []int64{1000, 1500} {
		id := fsm.WorkerID(i + 1)
		r.leader.op(t, &fsm.RegisterWorker{
			ID: id, Name: fmt.Sprint("w", id), Incarnation: testInstance, Slots: 4, Version: "v", Address: "host",
			Labels:    []fsm.Label{{Key: "zone", Value: "eu"}, {Key: fsm.TypeLabel, Value: "noop"}},
			Resources: []fsm.Resource{{Name: "gpu", Amount: gpus}},
		})
	}
	r.leader.explain = func(e *sequencer.Explanation) {
		e.Capacity = capacityOf(&sequencer.Capacity{Complete: true, Groups: []sequencer.WorkerGroup{{Workers: []fsm.WorkerID{1}}}})
	}
	h := header("x")
	var tasks []*dtaskv1.TaskSpec
	add := func(name string, p *dtaskv1.TaskPolicy) {
		p.Type, p.Execution = cmp.Or(p.GetType(), "noop"), h.GetPolicies()[0].GetExecution()
		h.Policies = append(h.Policies, p)
		one := task(name)
		one.Policy = uint32(len(h.GetPolicies()) - 1)
		tasks = append(tasks, one)
	}
	add("gpu", &dtaskv1.TaskPolicy{Resources: map[string]int64{"gpu": 3000}})
	add("fpga", &dtaskv1.TaskPolicy{Resources: map[string]int64{"fpga": 1000}})
	add("either", &dtaskv1.TaskPolicy{Resources: map[string]int64{"gpu": 3000}, Alternatives: []*dtaskv1.ResourceList{{Resources: map[string]int64{"cpu": 1000}}}})
	add("label", &dtaskv1.TaskPolicy{Require: map[string]string{"pool": "ml"}})
	add("oneof", &dtaskv1.TaskPolicy{Rules: []*dtaskv1.LabelRule{{Name: "zone", Values: []string{"ap", "us"}}}})
	add("not", &dtaskv1.TaskPolicy{Rules: []*dtaskv1.LabelRule{{Name: "zone", Values: []string{"eu"}, Not: true}}})
	add("any", &dtaskv1.TaskPolicy{Rules: []*dtaskv1.LabelRule{{Name: "rack"}}})
	add("secret", &dtaskv1.TaskPolicy{Secrets: []string{"db"}})
	add("type", &dtaskv1.TaskPolicy{Type: "odd"})
	add("fits", &dtaskv1.TaskPolicy{})
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	if _, err := r.send(t.Context(), request("k", h, tasks...)); err != nil {
		t.Fatal(err, detailOf(err).GetFaults())
	}
	const idle = "it fits no known worker, even if idle: no worker that is up "
	for name, want := range map[string]*dtaskv1.Reason{
		"gpu":    {Text: idle + "has 3 gpu; the most is 1.5", CauseCode: "resource_short", Name: "gpu", Want: 3000, Free: 1500, Total: 1500, Unit: "thousandths"},
		"fpga":   {Text: idle + "has 1 fpga", CauseCode: "resource_short", Name: "fpga", Want: 1000, Unit: "thousandths"},
		"either": {Text: idle + "has 3 gpu, or 1 cpu", CauseCode: "resource_short"},
		"label":  {Text: idle + "has the label pool=ml", CauseCode: "label_missing", Name: "pool", Value: "ml"},
		"oneof":  {Text: idle + "has the label zone=ap or zone=us", CauseCode: "label_not_one_of", Name: "zone", Value: "[ap, us]"},
		"not":    {Text: idle + "lacks the label zone=eu", CauseCode: "label_excluded", Name: "zone", Value: "eu"},
		"any":    {Text: idle + "has the label rack", CauseCode: "label_missing", Name: "rack", Value: "*"},
		"secret": {Text: idle + "has the secret db", CauseCode: "secret_missing", Name: "db"},
		"type":   {Text: idle + `handles tasks of type "odd"`, CauseCode: "type_missing", Name: "odd"},
		"fits":   {Text: "it fits no known worker: none that accepts tasks could run it, even if idle"},
	} {
		e, _ := r.explainTask(t, name)
		want.Code = "fits_no_worker"
		if _, detail, ok := strings.Cut(want.GetText(), "even if idle: "); ok {
			want.Detail, _, _ = strings.Cut(detail, "; ")
		}
		if got := e.GetReasons()[0]; !proto.Equal(got, want) {
			t.Errorf("task %s: got\n%v\nwant\n%v", name, got, want)
		}
	}
	r.leader.op(t, &fsm.DrainWorker{ID: 1, Until: 9_000_000}, &fsm.DrainWorker{ID: 2, Until: 9_000_000})
	if _, got := r.explainTask(t, "fits"); got != "fits_no_worker: it fits no worker that accepts tasks: all workers that could run it drain" {
		t.Errorf("while the worker drains: got %s", got)
	}
}

// What is said to be missing does not depend on workers that the caller must not know of.
func TestADemandIsExplainedWithoutWorkersOfOtherNamespaces(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	big := task("a")
	h := header("own")
	h.Policies[0].Resources = map[string]int64{"gpu": 3000}
	if _, err := r.send(as(t.Context(), "submitter"), request("own", h, big)); err != nil {
		t.Fatal(err)
	}
	r.worker(t)
	fork, _ := r.machine.Fork()
	r.leader.op(t, &fsm.RegisterWorker{
		ID: fork.NextWorker(), Name: "secret", Incarnation: testInstance, Slots: 4, Version: "v", Address: "host",
		Labels: []fsm.Label{{Key: fsm.NamespaceLabel, Value: "elsewhere"}}, Resources: []fsm.Resource{{Name: "gpu", Amount: 2000}},
	})
	r.leader.explain = func(e *sequencer.Explanation) {
		e.Capacity = capacityOf(&sequencer.Capacity{Complete: true, Groups: []sequencer.WorkerGroup{{Workers: []fsm.WorkerID{1}}}})
	}
	for name, want := range map[string]string{"submitter": "no worker that is up has 3 gpu", "admin": "no worker that fulfills the other requirements has 3 gpu"} {
		e, err := r.jobs.Explain(as(t.Context(), name), &dtaskv1.ExplainRequest{Job: "1", Task: "a"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := e.GetReasons()[0]; got.GetText() != "it fits no known worker, even if idle: "+want || got.GetTotal() != 0 {
			t.Errorf("%s: got %v, want %s", name, got, want)
		}
	}
}
