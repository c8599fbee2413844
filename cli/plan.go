package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// planFlags are the flags of `plan`: those of `submit` that change the job.
type planFlags struct {
	overrides                 jobOverrides
	name, namespace, priority string
}

func newPlan(a *app) *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan FILE|-",
		Short: "Show how a job would run, without submitting it",
		Long: `Show how the job of a file would run if it were submitted to an idle cluster now: which
workers fit its tasks, its critical path, how long it would take, what limits that, and what
has changed since the last job of its name. Nothing is stored. For a file with a schedule,
the plan is that of a run.

Run times are ranges from earlier jobs of the same name and owner: the quantiles 0.5 and 0.9
of at least 5 runs of a task. For other tasks, the field expect of the job file counts.

The exit code is 1 if no worker fits some of the tasks or some need more than a quota of the
queue, and 3 if the job file is invalid or names an unknown queue or limit.

` + staleHelp,
		Example: `  dtaskctl plan job.yaml
  dtaskctl plan nightly.yaml --set day=2026-05-01 -o json
  generate-job | dtaskctl plan -`,
		Args: oneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := f.job(args[0], a.in, a.specOptions())
			if err != nil {
				return err
			}
			return a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
				v, err := a.jobPlan(ctx, c, job)
				locateNames(err, args)
				return v, err
			})(cmd, args)
		},
	}
	fl := cmd.Flags()
	bind(fl, &f.priority, "priority", "", "`PRIORITY` of the job: low, normal, high or urgent, or 0 to 3", func(text string) (string, error) {
		_, err := parsePriority(text)
		return text, err
	})
	bind(fl, &f.name, "name", "", "`NAME` of the job", notEmpty)
	bindNamespace(fl, &f.namespace, namespaceUsage)
	f.overrides.bind(fl)
	a.bindStale(fl)
	return cmd
}

// job reads the only job of a file, or of in for "-".
func (f *planFlags) job(path string, in io.Reader, opts spec.Options) (*dtaskv1.JobSpec, error) {
	opts, err := f.overrides.options(opts, f.name, f.priority)
	if err != nil {
		return nil, err
	}
	opts.MayHaveSchedule = true
	jobs, err := readJobs([]string{path}, in, opts)
	if err != nil {
		return nil, err
	}
	if len(jobs) != 1 {
		return nil, usagef("%s has %d jobs: plan takes one", path, len(jobs))
	}
	inNamespace(f.namespace, jobs...)
	return jobs[0], nil
}

// jobPlan is the view of the plan of a job. The error is that some tasks fit no worker.
func (a *app) jobPlan(ctx context.Context, c *client.Client, job *dtaskv1.JobSpec) (view, error) {
	outline, err := spec.OutlineOf(job)
	if err != nil {
		return view{}, err //nolint:wrapcheck // it names the task
	}
	got, err := c.Plan(ctx, job.GetHeader(), outline.Tasks, a.readOptions())
	if err != nil {
		return view{}, submitError(err)
	}
	doc := document.NewJobPlan(got)
	doc.Name, doc.TasksTotal, doc.Levels = job.GetHeader().GetName(), countTasks(job), spec.Levels(job)
	doc.Width = slices.Max(doc.Levels)
	addPath(&doc, job, outline.Tasks, got)
	return view{doc: doc, text: func(p *show.Printer) { p.Plan(&doc) }}, unplaceable(got.GetClasses())
}

// addPath adds what follows from the run times that the cluster knows.
func addPath(doc *document.JobPlan, job *dtaskv1.JobSpec, tasks []*dtaskv1.PlanTask, got *dtaskv1.PlanResponse) {
	graph := spec.NewGraph(job.GetHeader(), tasks)
	takes := make([]spec.Span, len(tasks))
	for i, t := range tasks {
		if i < len(got.GetHighMs()) && i < len(got.GetLowMs()) && got.GetHighMs()[i] > 0 {
			takes[i] = spec.Span{Low: got.GetLowMs()[i], High: got.GetHighMs()[i], Bounded: true}
		} else if !graph.Skipped(i) {
			doc.Unknown = append(doc.Unknown, t.GetId())
		}
	}
	planRange := func(s spec.Span) document.PlanRange { return document.NewPlanRange(s.Low, s.High, s.Bounded) }
	path := graph.CriticalPath(takes)
	doc.CriticalPath.PlanRange, doc.SlotTime = planRange(path.Takes), planRange(graph.Work(takes))
	for _, i := range path.Nodes {
		step := document.PlanStep{ID: tasks[i].GetId(), PlanRange: planRange(graph.Takes(i, takes[i]))}
		if i < len(got.GetSamples()) {
			step.Samples = got.GetSamples()[i]
		}
		doc.CriticalPath.Tasks = append(doc.CriticalPath.Tasks, step)
	}
}

// unplaceable returns an error if no worker fits a class of tasks, or if one needs more than a quota
// of the queue.
func unplaceable(classes []*dtaskv1.PlanClass) error {
	unfit, above := uint64(0), uint64(0)
	for _, c := range classes {
		switch {
		case c.GetWorkers() == 0:
			unfit += c.GetTasks()
		case c.GetAtOnce() == 0:
			above += c.GetTasks()
		}
	}
	switch {
	case unfit > 0:
		return &commandError{
			err: fmt.Errorf("no worker fits %s", show.Plural(unfit, "task")), code: exitFailed,
			hint: "they would wait until a worker joins that has what they need; dtaskctl worker list shows what the workers have",
		}
	case above > 0:
		return &commandError{
			err: fmt.Errorf("the quotas of the queue are too low for %s", show.Plural(above, "task")), code: exitFailed,
			hint: "they would wait until the quota is raised; dtaskctl queue show NAME shows the quotas",
		}
	}
	return nil
}
