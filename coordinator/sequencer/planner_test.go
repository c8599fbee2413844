package sequencer_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Policies of planned jobs, by number.
const (
	plain = iota
	onGPU
	inZone
	urgent
	cleanup
	nowhere
)

func plannedHeader() *dtaskv1.JobHeader {
	policy := func(change func(*dtaskv1.TaskPolicy)) *dtaskv1.TaskPolicy {
		p := &dtaskv1.TaskPolicy{Type: "noop", TimeoutMs: 3_600_000}
		change(p)
		return p
	}
	return &dtaskv1.JobHeader{Name: "planned", Priority: dtaskv1.Priority_PRIORITY_NORMAL, Policies: []*dtaskv1.TaskPolicy{
		plain:   policy(func(*dtaskv1.TaskPolicy) {}),
		onGPU:   policy(func(p *dtaskv1.TaskPolicy) { p.Resources = map[string]int64{"gpu": 1000} }),
		inZone:  policy(func(p *dtaskv1.TaskPolicy) { p.Require = map[string]string{"zone": "eu"} }),
		urgent:  policy(func(p *dtaskv1.TaskPolicy) { p.Priority = dtaskv1.Priority_PRIORITY_URGENT }),
		cleanup: policy(func(p *dtaskv1.TaskPolicy) { p.Finally = true }),
		nowhere: policy(func(p *dtaskv1.TaskPolicy) { p.Require = map[string]string{"zone": "mars"} }),
	}}
}

// A plannedJob is a job with the exact run time of its tasks.
type plannedJob struct {
	tasks []sequencer.PlannedTasks
	takes []int64 // ms of each task, by entry
}

func (j *plannedJob) add(policy, tasks, maxParallel uint32, takes int64, needs ...uint32) uint32 {
	j.tasks = append(j.tasks, sequencer.PlannedTasks{Policy: policy, Tasks: tasks, MaxParallel: maxParallel, Needs: needs})
	j.takes = append(j.takes, takes)
	return uint32(len(j.tasks) - 1)
}

// submission returns the job as it is submitted, and the run time of each task.
func (j *plannedJob) submission(tb testing.TB) (s sequencer.Submission, takes []time.Duration) {
	tb.Helper()
	raw, err := proto.Marshal(plannedHeader())
	if err != nil {
		tb.Fatal(err)
	}
	s = sequencer.Submission{Key: "planned", Header: raw}
	firsts := make([]uint32, len(j.tasks))
	add := func(c *fsm.Chunk) {
		s.Sum = c.Sum(s.Sum)
		s.Chunks = append(s.Chunks, c)
	}
	for i, t := range j.tasks {
		firsts[i] = s.Total
		deps := make([]uint32, len(t.Needs))
		for k, of := range t.Needs {
			deps[k] = firsts[of]
		}
		if name := fmt.Sprint("t", i); t.Tasks == 1 && t.MaxParallel == 0 {
			b := fsm.NewChunkBuilder(s.Total)
			b.Add(name, t.Policy, deps, nil)
			add(b.Chunk())
		} else {
			add(fsm.NewArrayChunk(s.Total, fsm.Array{
				Name: name, Policy: t.Policy, Deps: deps, Ranges: []fsm.IndexRange{{First: 0, Step: 1, Count: t.Tasks}}, Items: t.Tasks, Chunk: 1, MaxParallel: t.MaxParallel,
			}, nil))
		}
		s.Total += t.Tasks
		takes = append(takes, slices.Repeat([]time.Duration{time.Duration(j.takes[i]) * time.Millisecond}, int(t.Tasks))...)
	}
	return s, takes
}

// shapes are jobs that differ in what they wait for.
func shapes() map[string]*plannedJob {
	r := rand.New(rand.NewPCG(1, 2))
	some := func(low, high int64) int64 { return low + r.Int64N(high-low) }
	all := make(map[string]*plannedJob)
	job := func(name string) *plannedJob {
		all[name] = new(plannedJob)
		return all[name]
	}
	chain := job("a chain")
	for i := range uint32(8) {
		if i == 0 {
			chain.add(plain, 1, 0, some(500, 3000))
		} else {
			chain.add(plain, 1, 0, some(500, 3000), i-1)
		}
	}
	job("one wide array").add(plain, 150, 0, 700)
	tasks := job("tasks of all lengths")
	for range 120 {
		tasks.add(plain, 1, 0, some(100, 6000))
	}
	levels := job("map and reduce")
	maps := levels.add(plain, 60, 0, 900)
	mid := levels.add(plain, 10, 0, 2500, maps)
	levels.add(plain, 1, 0, 4000, mid)
	limited := job("limits")
	limited.add(plain, 30, 2, 800)
	limited.add(plain, 40, 5, 1100)
	limited.add(plain, 20, 0, 500)
	gpus := job("a resource that is short")
	gpus.add(onGPU, 24, 0, 1300)
	gpus.add(plain, 50, 0, 600)
	zones := job("labels and priorities")
	first := zones.add(inZone, 30, 0, 900)
	zones.add(plain, 60, 0, 700)
	zones.add(urgent, 20, 0, 1500)
	zones.add(inZone, 10, 0, 1200, first)
	random := job("a random graph with cleanup")
	for i := range uint32(90) {
		var needs []uint32
		for d := range i {
			if r.IntN(30) == 0 {
				needs = append(needs, d)
			}
		}
		policies := []uint32{plain, plain, plain, onGPU, inZone, urgent}
		random.add(policies[r.IntN(len(policies))], 1, 0, some(200, 4000), needs...)
	}
	random.add(cleanup, 5, 0, 1000)
	random.add(cleanup, 1, 0, 700, 90)
	return all
}

// fleets are workers, by their slots. The first has two GPUs, each third is in the zone eu.
var fleets = map[string][]uint32{
	"one worker":      {6},
	"unequal ones":    {2, 4, 8, 1},
	"many small ones": slices.Repeat([]uint32{2}, 20),
}

func plannedWorker(i int, slots uint32) sequencer.Hello {
	h := sequencer.Hello{Name: fmt.Sprintf("w%02d", i), Incarnation: "i", Slots: slots, Prefetch: 4}
	if i == 0 {
		h.Resources = []fsm.Resource{{Name: "gpu", Amount: 2000}}
	}
	if i%3 == 0 {
		h.Labels = []fsm.Label{{Key: "zone", Value: "eu"}}
	}
	return h
}

// plannedRuns is how often each job is run: equal runs differ in which of equally loaded workers
// gets a task.
const plannedRuns = 10

// The makespan of a plan with exact run times is that of all real runs, within 5 %: of the
// sequencer with its log, and workers whose reports take a millisecond. Where equal workers
// make a difference, the plan is a range.
func TestAPlannedMakespanIsThatOfTheRun(t *testing.T) {
	t.Parallel()
	for shape, job := range shapes() {
		for fleet, slots := range fleets {
			t.Run(shape+" on "+fleet, func(t *testing.T) {
				t.Parallel()
				var measured []time.Duration
				var workers []*fsm.Worker
				for seed := range uint64(plannedRuns) {
					synctest.Test(t, func(t *testing.T) {
						var took time.Duration
						took, workers = runPlanned(t, job, slots, seed+1)
						measured = append(measured, took)
					})
				}
				l, h, ok := sequencer.NewPlanner(plannedHeader(), workers, nil, nil).Makespan(job.tasks, func(i int) int64 { return job.takes[i] }, func() bool { return false })
				low, high := time.Duration(l)*time.Millisecond, time.Duration(h)*time.Millisecond
				t.Logf("planned %v to %v, took %v to %v", low, high, slices.Min(measured), slices.Max(measured))
				for _, took := range measured {
					if tolerance := took / 20; !ok || took < low-tolerance || took > high+tolerance {
						t.Errorf("planned %v to %v, %t, but a run took %v", low, high, ok, took)
					}
				}
			})
		}
	}
}

// runPlanned runs a job, and returns how long it took, and its workers.
func runPlanned(t *testing.T, job *plannedJob, slots []uint32, seed uint64) (took time.Duration, workers []*fsm.Worker) {
	t.Helper()
	sub, takes := job.submission(t)
	c := newCluster(t)
	c.config = func(cfg *sequencer.Config) { cfg.Seed = seed }
	s, end := c.lead()
	defer func() { _ = end() }()
	for i, n := range slots {
		w := &queueWorker{t: t, s: s, slots: int(n), first: 1, begun: func(fsm.AttemptRef) {}, takes: func(a fsm.AttemptRef) time.Duration { return takes[a.Index] }}
		welcome, err := s.Attach(t.Context(), plannedWorker(i, n), w)
		if err != nil {
			t.Fatal(err)
		}
		w.id = welcome.Worker
	}
	began := time.Now()
	stored, err := s.Submit(t.Context(), sub)
	if err != nil {
		t.Fatal(err)
	}
	for index := c.machine.Index(); !c.job(stored.ID).State.Terminal(); index = c.machine.Index() {
		<-c.machine.Changed(index)
	}
	took = time.Since(began)
	if got := c.job(stored.ID).State; got != fsm.JobCompleted {
		t.Fatalf("the job is %v", got)
	}
	st, _ := c.machine.Fork()
	return took, slices.Collect(st.Workers())
}

func TestAPlannerCountsTheWorkersThatFit(t *testing.T) {
	t.Parallel()
	var workers []*fsm.Worker
	for i, n := range fleets["unequal ones"] {
		h := plannedWorker(i, n)
		workers = append(workers, &fsm.Worker{ID: fsm.WorkerID(i + 1), State: fsm.WorkerUp, Slots: n, Labels: h.Labels, Resources: h.Resources})
	}
	p := sequencer.NewPlanner(plannedHeader(), workers, nil, nil)
	if p.Slots() != 15 || p.Total("gpu") != 2000 || p.Total("license") != 0 {
		t.Errorf("got %d slots, %v gpu", p.Slots(), p.Total("gpu"))
	}
	for policy, want := range map[uint32][2]uint64{plain: {4, 15}, onGPU: {1, 2}, inZone: {2, 3}, urgent: {4, 15}, nowhere: {0, 0}} {
		if n, tasks := p.Fitting(policy); uint64(n) != want[0] || tasks != want[1] {
			t.Errorf("policy %d: %d workers for %d tasks, want %v", policy, n, tasks, want)
		}
	}
	if p.Class(plain) != p.Class(urgent) || p.Class(plain) == p.Class(onGPU) {
		t.Error("policies with equal demands must share a class, and others must not")
	}
	never := func() bool { return false }
	if _, _, ok := p.Makespan([]sequencer.PlannedTasks{{Policy: plain, Tasks: 3}, {Policy: nowhere, Tasks: 1}}, func(int) int64 { return 5 }, never); ok {
		t.Error("a job ends although no worker fits one of its tasks")
	}
}

// A plan takes as long as the quota of the job's queue demands, and counts only workers that
// have what the queue requires. A pause is not planned.
func TestAPlanRespectsTheQuotaOfItsQueue(t *testing.T) {
	t.Parallel()
	workers := []*fsm.Worker{
		{ID: 1, State: fsm.WorkerUp, Slots: 4, Labels: []fsm.Label{{Key: "pool", Value: "etl"}}},
		{ID: 2, State: fsm.WorkerUp, Slots: 4},
	}
	tasks := []sequencer.PlannedTasks{{Policy: plain, Tasks: 8}}
	for name, c := range map[string]struct {
		queue *fsm.Queue
		want  int64
	}{
		"no queue":     {nil, 100},
		"a quota of 2": {&fsm.Queue{Name: "etl", QueueSettings: fsm.QueueSettings{Weight: 1, MaxRunning: 2}}, 400},
		"a pool":       {&fsm.Queue{Name: "etl", QueueSettings: fsm.QueueSettings{Weight: 1, Require: []fsm.Label{{Key: "pool", Value: "etl"}}}}, 200},
		"a pause":      {&fsm.Queue{Name: "etl", QueueSettings: fsm.QueueSettings{Weight: 1}, Pause: fsm.QueuePause{AtMS: 1}}, 100},
	} {
		p := sequencer.NewPlanner(plannedHeader(), workers, c.queue, nil)
		low, high, ok := p.Makespan(tasks, func(int) int64 { return 100 }, func() bool { return false })
		if !ok || low != c.want || high != c.want {
			t.Errorf("%s: got %d to %d ms, %v; want %d", name, low, high, ok, c.want)
		}
	}
}
