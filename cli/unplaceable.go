package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

const (
	// maxFitTasks is how many tasks are checked, each with other demands.
	maxFitTasks = 100
	// maxFitJobs is how many of the jobs that are submitted together are checked.
	maxFitJobs = 10
	// workersTimeout is how long the resources of the workers are read for a warning.
	workersTimeout = 2 * time.Second
)

// warnUnplaceable warns about tasks of submitted jobs, or of the job of a schedule, that demand
// more than any worker has, or whose queue does, or that are of a type that none handles: they wait
// until a worker joins. It also warns about tasks that need more than a quota of their queue. Jobs
// without such demands that name no queue cost no call. It is only a hint: without an answer from
// the cluster, nothing is printed.
func (a *app) warnUnplaceable(ctx context.Context, c *client.Client, jobs ...*dtaskv1.JobSpec) {
	if a.quiet {
		return
	}
	for _, job := range jobs[:min(len(jobs), maxFitJobs)] {
		header, tasks := demanding(job)
		if len(tasks) == 0 {
			continue
		}
		classes, err := c.Fitting(ctx, header, tasks)
		if err != nil {
			return
		}
		for _, class := range classes {
			until := "a worker joins that fits it"
			switch {
			case class.GetWorkers() == 0:
			case class.GetAtOnce() == 0:
				until = "the quota is raised"
			default:
				continue
			}
			a.warn("warning: task %s of job %s waits until %s: %s", show.Clean(class.GetTask()), show.Clean(header.GetName()), until, show.Clean(class.GetReason()))
		}
	}
}

// warnMissingResources warns about the quotas of a queue on resources that no worker has: they are
// probably misspelled, and then limit nothing. Without a known worker, or an answer from the
// cluster, nothing is printed.
func (a *app) warnMissingResources(ctx context.Context, c *client.Client, quotas map[string]int64) {
	if len(quotas) == 0 {
		return
	}
	ctx, cancel := a.optional(ctx, workersTimeout)
	defer cancel()
	missing, known := maps.Clone(quotas), false
	for w, err := range c.Workers(ctx, client.WorkerFilter{}) {
		if err != nil {
			return
		}
		known = true
		maps.DeleteFunc(missing, func(name string, _ int64) bool { return w.GetResources()[name] > 0 })
		if len(missing) == 0 {
			return
		}
	}
	if !known {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		a.warn("warning: no worker has the resource %s that --max limits; dtaskctl worker list -o json shows what the workers have", show.Clean(name))
	}
}

// demanding returns the first task of each policy that demands labels, resources or secrets, or a
// type that only some workers have, with a header of these policies. In a named queue, that may
// require labels, each policy demands something.
func demanding(job *dtaskv1.JobSpec) (*dtaskv1.JobHeader, []*dtaskv1.PlanTask) {
	h := job.GetHeader()
	seen := make(map[string]bool)
	only := &dtaskv1.JobHeader{Name: h.GetName(), Owner: h.GetOwner(), Namespace: h.GetNamespace(), Queue: h.GetQueue(), Priority: h.GetPriority(), OnFailure: h.GetOnFailure()}
	var tasks []*dtaskv1.PlanTask
	checked := make(map[uint32]bool)
	for _, t := range job.GetTasks() {
		if checked[t.GetPolicy()] {
			continue
		}
		checked[t.GetPolicy()] = true
		p := h.GetPolicies()[t.GetPolicy()]
		if h.GetQueue() == "" && !isSpecial(p.GetType()) && len(p.GetResources())+len(p.GetAlternatives())+len(p.GetRequire())+len(p.GetRules())+len(p.GetSecrets()) == 0 {
			continue
		}
		key := demandKey(p)
		if seen[key] {
			continue
		}
		if seen[key] = true; len(tasks) == maxFitTasks {
			break
		}
		tasks = append(tasks, &dtaskv1.PlanTask{Id: t.GetId(), Policy: uint32(len(only.GetPolicies()))}) //nolint:gosec // at most maxFitTasks
		only.Policies = append(only.Policies, &dtaskv1.TaskPolicy{
			Type: p.GetType(), Execution: p.GetExecution(), Resources: p.GetResources(), Alternatives: p.GetAlternatives(),
			Require: p.GetRequire(), Rules: p.GetRules(), Secrets: p.GetSecrets(),
		})
	}
	return only, tasks
}

// isSpecial reports whether workers need a handler of their own for a type of tasks. Commands have
// none.
func isSpecial(taskType string) bool {
	return taskType != "" && !slices.Contains(spec.BuiltInTypes(), taskType)
}

// demandKey is equal for policies with equal demands.
func demandKey(p *dtaskv1.TaskPolicy) (key string) {
	key = fmt.Sprintf("%q %q", p.GetType(), p.GetSecrets())
	resources := []map[string]int64{p.GetResources()}
	for _, other := range p.GetAlternatives() {
		resources = append(resources, other.GetResources())
	}
	for _, amounts := range resources {
		key += " |"
		for _, name := range slices.Sorted(maps.Keys(amounts)) {
			key += fmt.Sprintf(" %q %d", name, amounts[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.GetRequire())) {
		key += fmt.Sprintf(" %q=%q", name, p.GetRequire()[name])
	}
	for _, r := range p.GetRules() {
		key += fmt.Sprintf(" %q %v %q", r.GetName(), r.GetNot(), r.GetValues())
	}
	return key
}
