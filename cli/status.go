package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxActiveJobs is how many jobs the status of the cluster lists.
	maxActiveJobs = 100
	// redrawInterval is the period of --watch for the cluster, which has no watch.
	redrawInterval = 2 * time.Second
	// reasonTimeout bounds the call for the reason of a pending task.
	reasonTimeout = 2 * time.Second
)

func newStatus(a *app) *cobra.Command {
	var watch, critical bool
	var states []dtaskv1.TaskState
	cmd := &cobra.Command{
		Use:   "status [JOB[/TASK]]",
		Short: "Show a job, a task or the whole cluster",
		Long: `Show a job with its tasks, a task with its attempts, or the cluster with its pending
and running jobs. For an array, a job's status shows the number of tasks in each state,
and the tasks that failed or run; JOB/ARRAY shows all tasks. The exit code is 0 even if
the job failed. --state shows only the tasks in these states. A pending task that is shown
alone has the main reason why it waits; "dtaskctl explain" shows all.

--critical-path shows the chain of tasks that determined the end of a job, and how long each
of them waited and ran: from the task that ended last back to the start, always by the
dependency that ended last. While the job runs, the chain ends with the task that has been
ready or running for the longest time.

` + staleHelp,
		Example: `  dtaskctl status
  dtaskctl status 42
  dtaskctl status 42/fetch
  dtaskctl status '42/map[17]'
  dtaskctl status 42 --watch
  dtaskctl status 42 --state failed,dead
  dtaskctl status 42 --critical-path
  dtaskctl status 42 --stale
  dtaskctl status 42 -o json
  dtaskctl status @last
  dtaskctl status @etl/fetch`,
		Args: argCount(0, 1),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			if watch && !a.textOutput() {
				return view{}, usagef("--watch cannot be used with --output %s", a.format)
			}
			if watch && a.stale {
				return view{}, usagef("--watch and --stale are mutually exclusive")
			}
			if len(args) == 0 {
				if len(states) > 0 {
					return view{}, usagef("--state requires JOB: dtaskctl list --state selects jobs")
				}
				if critical {
					return view{}, usagef("--critical-path requires JOB")
				}
				read := func() (view, error) { return a.clusterView(ctx, c) }
				if watch {
					return view{}, a.watchCluster(ctx, read)
				}
				return read()
			}
			r, err := a.ref(ctx, c, args[0])
			if err != nil {
				return view{}, err
			}
			read := func() (view, error) { return a.jobView(ctx, c, r.job, states) }
			if r.task != "" {
				read = func() (view, error) { return a.taskView(ctx, c, r.job, r.task, states) }
			}
			if critical {
				if r.task != "" || len(states) > 0 {
					return view{}, usagef("--critical-path cannot be used with a task or --state: it is about a whole job")
				}
				read = func() (view, error) { return a.pathView(ctx, c, r.job) }
			}
			if watch {
				return view{}, a.watchJob(ctx, c, r.job, read)
			}
			return read()
		}),
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false,
		"redraw after every change until the job finishes")
	cmd.Flags().BoolVar(&critical, "critical-path", false, "show the tasks that determined the end of the job")
	cmd.Flags().Func("state", "only tasks in this `STATE`: "+alternatives(taskStateNames())+" (comma-separated or repeated)", func(text string) error {
		parsed, err := parseStates(text, allTaskStates, document.TaskState)
		states = append(states, parsed...)
		return err
	})
	a.bindStale(cmd.Flags())
	return cmd
}

// allTaskStates are the states of a task in the order of their numbers, which is that in
// which a task passes them.
var allTaskStates = func() (states []dtaskv1.TaskState) {
	for s := dtaskv1.TaskState_TASK_STATE_BLOCKED; dtaskv1.TaskState_name[int32(s)] != ""; s++ {
		states = append(states, s)
	}
	return states
}()

func taskStateNames() []string {
	names := make([]string, len(allTaskStates))
	for i, s := range allTaskStates {
		names[i] = document.TaskState(s)
	}
	return names
}

// taskFilter is the filter of a read of tasks in some states; none = all.
func (a *app) taskFilter(states []dtaskv1.TaskState) client.TaskFilter {
	return client.TaskFilter{States: states, Stale: a.stale, Fresh: a.noteFresh}
}

// jobView reads a job with its tasks, or those in some states. Text shows the most urgent tasks, of arrays only
// those that failed or run; JSON and YAML have all, and the job was read before them.
func (a *app) jobView(ctx context.Context, c *client.Client, id string, states []dtaskv1.TaskState) (view, error) {
	filter := a.taskFilter(states)
	if !a.textOutput() {
		opts := a.readOptions()
		opts.Levels = true
		job, err := c.Job(ctx, id, opts)
		if err != nil {
			return view{}, err
		}
		return view{doc: document.NewJobWithTasks(job, nil), tasks: c.Tasks(ctx, id, filter)}, nil
	}
	filter.Brief = len(states) == 0
	job, tasks, selected, err := c.JobWithTasks(ctx, id, filter, show.MaxRows)
	if err != nil {
		return view{}, err
	}
	a.addReason(ctx, c, id, tasks)
	return view{doc: document.NewJobWithTasks(job, nil), text: func(p *show.Printer) {
		p.Job(job)
		p.Arrays(job.GetArrays())
		if len(tasks) > 0 || len(job.GetArrays()) == 0 {
			p.Tasks(tasks, selected)
		}
		p.PendingHint(job)
	}}, nil
}

// taskView reads a task with its attempts, or the tasks of an array.
func (a *app) taskView(ctx context.Context, c *client.Client, job, id string, states []dtaskv1.TaskState) (view, error) {
	filter := a.taskFilter(states)
	filter.Task, filter.History = id, true
	tasks, selected, err := c.MostUrgentTasks(ctx, job, filter, show.MaxRows)
	if err != nil {
		return view{}, err
	}
	if selected == 1 && tasks[0].GetArray() != id {
		if a.textOutput() {
			a.addReason(ctx, c, job, tasks)
		}
		return view{
			doc:  document.NewTaskWithHistory(job, tasks[0]),
			text: func(p *show.Printer) { p.Task(job, tasks[0]) },
		}, nil
	}
	return view{
		doc:   document.NewArrayWithTasks(job, id, nil),
		tasks: c.Tasks(ctx, job, withoutHistory(filter)),
		text:  func(p *show.Printer) { p.Tasks(tasks, selected) },
	}, nil
}

// addReason gives a pending task that is shown alone the first reason of its explanation. The
// status is complete without: it does not wait for a leader that does not answer, and an
// error is ignored.
func (a *app) addReason(ctx context.Context, c *client.Client, job string, tasks []*dtaskv1.Task) {
	if a.stale || len(tasks) != 1 || tasks[0].GetState() != dtaskv1.TaskState_TASK_STATE_PENDING || tasks[0].GetPendingReason() != "" {
		return
	}
	ctx, cancel := a.optional(ctx, reasonTimeout)
	defer cancel()
	e, err := c.Explain(ctx, job, tasks[0].GetId())
	if err != nil || e.GetState() != tasks[0].GetState() || len(e.GetReasons()) == 0 {
		return
	}
	tasks[0].PendingReason = e.GetReasons()[0].GetText()
}

// withoutHistory is a filter that does not read the attempts of tasks.
func withoutHistory(f client.TaskFilter) client.TaskFilter {
	f.History = false
	return f
}

// clusterView reads the coordinators and the active jobs, which need a leader unless the
// read is stale.
func (a *app) clusterView(ctx context.Context, c *client.Client) (view, error) {
	status, err := c.ClusterStatus(ctx)
	if err != nil {
		return view{}, err
	}
	var jobs []*dtaskv1.Job
	if status.GetLeader() != "" || a.stale {
		active := client.JobFilter{States: activeJobStates, Limit: maxActiveJobs, Stale: a.stale, Fresh: a.noteFresh}
		if jobs, err = collect(c.Jobs(ctx, active)); err != nil {
			return view{}, err
		}
	}
	doc := document.NewStatus(status, jobs)
	if !a.stale {
		doc.Cluster.Queues = a.queueSummary(ctx, c, status)
	}
	return view{doc: doc, text: func(p *show.Printer) {
		p.Cluster(status, doc.Cluster.Queues)
		p.Line("")
		if len(jobs) == 0 {
			p.Line("no pending or running jobs")
			return
		}
		p.Jobs(jobs)
	}}, nil
}

// watchJob redraws a view after every change of a job.
func (o *output) watchJob(ctx context.Context, c *client.Client, id string, read func() (view, error)) error {
	for _, err := range c.Watch(ctx, id) {
		if err != nil {
			return err
		}
		if err := o.redraw(read); err != nil {
			return err
		}
	}
	return nil
}

// watchCluster redraws a view periodically until ctx is done.
func (o *output) watchCluster(ctx context.Context, read func() (view, error)) error {
	tick := time.NewTicker(redrawInterval)
	defer tick.Stop()
	for {
		if err := o.redraw(read); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// redraw draws a view: in place on a terminal, below the previous one elsewhere.
func (o *output) redraw(read func() (view, error)) error {
	v, err := read()
	if err != nil {
		return err
	}
	text, err := o.render(v)
	if err == nil && isTerminal(o.out) {
		_, err = fmt.Fprint(o.out, "\x1b[H\x1b[2J")
	}
	return o.write(append(text, '\n'), err)
}
