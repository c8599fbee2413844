package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/chaos/check"
	"github.com/dtask/dtask/test/cluster"
)

// A shape makes the tasks of a job.
type shape struct {
	name   string
	weight int
	make   func(*rand.Rand) []check.PlannedTask
	// cancels is how many of ten such jobs a client tries to cancel.
	cancels int
	// commands makes the tasks real processes.
	commands bool
	// slow makes tasks take seconds, so that workers and leaders die while they run.
	slow bool
	// placed makes its tasks require labels of workers, and choose one of those.
	placed bool
	// queue is the one in which its tasks wait; empty: the default one.
	queue string
	// pool is what the queue requires of workers.
	pool check.Rules
	// quota is that of the queue on the resource; 0 = it has none, or changes.
	quota float64
	// uses chooses the limits of its tasks; nil: none.
	uses func(random *rand.Rand) []string
	// holders is how many tasks may hold each of its limits; 0 = one.
	holders int
	// rate is that of its limits, which then have no number.
	rate *check.Rate
	// handed makes tasks mostly very short.
	handed bool
	// gate chooses what keeps its tasks from starting; nil: nothing does.
	gate func(random *rand.Rand) *check.Gate
	// ticked makes tasks take longer than a part of their schedule's ticks are apart.
	ticked bool
	// held makes tasks take longer than a leader waits for a worker.
	held bool
	// priority is that of the job; 0 = normal.
	priority dtaskv1.Priority
	// preemptible makes its tasks give their places to urgent ones.
	preemptible bool
}

// shapes lists all shapes.
func shapes() []shape {
	return append([]shape{
		{name: "fan", weight: 5, make: fan},
		{name: "chain", weight: 4, make: chain},
		{name: "diamond", weight: 4, make: diamond},
		{name: "wide", weight: 5, make: wide},
		{name: "graph", weight: 4, make: graph},
		{name: "retry", weight: 3, make: retry},
		{name: "dead", weight: 1, make: dead},
		{name: "once", weight: 2, make: once},
		{name: "cancel", weight: 3, make: graph, cancels: 8, slow: true},
		{name: "slow", weight: 1, make: wide, slow: true},
		{name: "command", weight: 3, make: diamond, commands: true},
		{name: "placed", weight: 2, make: graph, placed: true},
	}, append(queuedShapes(), gpuShapes()...)...)
}

// plenty is a number of retries that killed processes never exhaust.
const plenty = 20

func numbered(n int) []check.PlannedTask {
	tasks := make([]check.PlannedTask, n)
	for i := range tasks {
		tasks[i] = check.PlannedTask{ID: fmt.Sprintf("t%d", i), Retries: plenty}
	}
	return tasks
}

func fan(random *rand.Rand) []check.PlannedTask {
	tasks := numbered(6 + random.IntN(12))
	last := len(tasks) - 1
	for i := 1; i < last; i++ {
		tasks[i].After = []string{tasks[0].ID}
		tasks[last].After = append(tasks[last].After, tasks[i].ID)
	}
	return tasks
}

func chain(random *rand.Rand) []check.PlannedTask {
	tasks := numbered(3 + random.IntN(6))
	for i := 1; i < len(tasks); i++ {
		tasks[i].After = []string{tasks[i-1].ID}
	}
	return tasks
}

func diamond(*rand.Rand) []check.PlannedTask {
	tasks := numbered(4)
	tasks[1].After, tasks[2].After = []string{"t0"}, []string{"t0"}
	tasks[3].After = []string{"t1", "t2"}
	return tasks
}

func wide(random *rand.Rand) []check.PlannedTask { return numbered(10 + random.IntN(30)) }

func graph(random *rand.Rand) []check.PlannedTask {
	tasks := numbered(5 + random.IntN(12))
	for i := range tasks {
		for j := range i {
			if random.IntN(2*i) == 0 {
				tasks[i].After = append(tasks[i].After, tasks[j].ID)
			}
		}
	}
	return tasks
}

func retry(random *rand.Rand) []check.PlannedTask {
	tasks := graph(random)
	for i := range tasks {
		if random.IntN(2) == 0 {
			tasks[i].Fails = 1 + random.IntN(2)
		}
	}
	return tasks
}

func dead(random *rand.Rand) []check.PlannedTask {
	tasks := graph(random)
	i := random.IntN(len(tasks))
	tasks[i].Fails, tasks[i].Retries = 3, 1
	return tasks
}

func once(random *rand.Rand) []check.PlannedTask {
	tasks := graph(random)
	for i := range tasks {
		tasks[i].Once, tasks[i].Retries = true, 0
	}
	return tasks
}

// build makes a job and its plan.
func (w *Workload) build(random *rand.Rand, s shape, name, key string) (*dtaskv1.JobSpec, check.Plan, error) {
	plan := check.Plan{Key: key, Name: name, Shape: s.name, Tasks: s.make(random), Pool: s.pool}
	if s.uses != nil {
		plan.Uses, plan.Holders, plan.Rate = s.uses(random), s.holders, s.rate
	}
	if s.quota > 0 {
		plan.Meter, plan.Quota = s.queue, s.quota
	}
	for i := range plan.Tasks {
		if s.placed {
			plan.Tasks[i].Require = w.rules(random)
		}
	}
	if s.gate != nil {
		plan.Gate = s.gate(random)
	}
	job, err := spec.Parse("workload", []byte(w.file(random, s, plan)), spec.Options{})
	if err != nil {
		return nil, plan, fmt.Errorf("building job of shape %s: %w", s.name, err)
	}
	prioritize(job, s)
	plan.Body, err = digest(job)
	return job, plan, err
}

// file returns the job file of a plan.
func (w *Workload) file(random *rand.Rand, s shape, plan check.Plan) string {
	job := map[string]any{"name": plan.Name, "on_failure": "continue"}
	if s.queue != "" {
		job["queue"] = s.queue
	}
	if plan.Gate != nil {
		gated(job, plan.Gate)
	}
	return cluster.JobFileWith(job, w.taskFiles(random, s, plan)...)
}

// taskFiles returns the tasks of a plan. They take up to a tenth of a second, or longer if
// slow.
func (w *Workload) taskFiles(random *rand.Rand, s shape, plan check.Plan) []cluster.TaskFile {
	most := int64(120)
	if s.slow {
		most = 2500
	}
	if s.ticked {
		most = 1200
	}
	if s.held {
		most = 8000
	}
	files := make([]cluster.TaskFile, 0, len(plan.Tasks))
	for _, t := range plan.Tasks {
		work := 1 + random.Int64N(most)
		if s.handed {
			work = handedWork(random)
		}
		file := cluster.TaskFile{"id": t.ID, "retry": map[string]any{"max": t.Retries, "initial": "50ms", "max_delay": "400ms"}}
		if s.commands {
			file = w.cfg.Programs.Mark(t.ID, w.cfg.Ledger, time.Duration(10*work)*time.Millisecond).With("retry", file["retry"])
		} else {
			file["type"], file["payload"] = cluster.MarkType, fmt.Sprintf(`{"work_ms":%d,"fails":%d}`, work, t.Fails)
		}
		if t.Once {
			file["execution"] = "at-most-once"
		}
		if len(plan.Uses) > 0 {
			file["uses"] = plan.Uses
		}
		if s.placed {
			require(file, t.Require)
			placed(random, file)
		}
		if t.Takes > 0 {
			takes(random, t.Takes, file)
		}
		if t.GPUs > 0 {
			file["resources"] = map[string]any{"gpu": t.GPUs}
		}
		files = append(files, file.After(t.After...))
	}
	return files
}

// digest identifies what is submitted.
func digest(job *dtaskv1.JobSpec) (string, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(job)
	if err != nil {
		return "", fmt.Errorf("encoding job: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8]), nil
}
