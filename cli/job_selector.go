package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/internal/statetext"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// selectorHelp explains the filters of a command that changes jobs.
const selectorHelp = `Instead of JOB, filters such as --name select jobs. On a terminal, they are confirmed
first; elsewhere, --yes is required. --dry-run prints what would be changed. A line for
each job reports what happened to it. The exit code is that of the first job that could
not be changed; a job that no longer matches when its turn comes is reported and skipped.`

// A jobSelector selects the jobs that a command changes: the named ones and their tasks,
// or those that match the filters.
type jobSelector struct {
	confirmation

	filter client.JobFilter
	// usual are the states that jobs must have if the user sets none, and possible those
	// that the user may set.
	usual, possible []dtaskv1.JobState
	// grouped means that one call may name several tasks of a job.
	grouped bool
	// explicit are flags that require named jobs.
	explicit []string

	filtered bool // the filters select, not the arguments
}

// A target is a job, or tasks of one, that a command changes.
type target struct {
	selection // with jobRef.task if there is one task and the command doesn't group tasks

	state dtaskv1.JobState // of the job when it was selected; 0 = unknown
}

// describe names a target in a line of output.
func (t *target) describe() string {
	if len(t.tasks) == 0 {
		return t.jobRef.describe()
	}
	text := show.Plural(len(t.tasks), "task") + " of " + t.jobRef.describe()
	if len(t.tasks) == 1 {
		text = jobRef{job: t.job, task: t.tasks[0], name: t.name}.describe()
	}
	return text
}

// bindJobSelector adds the filters of a command, and checks its arguments.
func (a *app) bindJobSelector(cmd *cobra.Command, s *jobSelector) {
	if s.possible == nil {
		s.possible = s.usual
	}
	a.bindJobFilter(cmd.Flags(), &s.filter, s.possible)
	s.bind(cmd.Flags())
	cmd.Args = s.args
}

// args requires jobs or filters, and not both.
func (s *jobSelector) args(cmd *cobra.Command, args []string) error {
	fl, set := cmd.Flags(), ""
	for _, name := range jobFilterFlags {
		if fl.Changed(name) {
			set = name
			break
		}
	}
	s.filtered = set != ""
	switch {
	case len(args) > 0 && s.filtered:
		return fmt.Errorf("JOB and --%s are mutually exclusive", set)
	case len(args) > 0:
		return nil
	case !s.filtered:
		return fmt.Errorf("missing selection: use JOB, or filters such as --name: %s", cmd.UseLine())
	}
	// An empty filter matches all jobs, as an unset variable of a script would.
	for name, empty := range map[string]bool{"name": s.filter.Name == "", "owner": s.filter.Owner == "", "label": len(s.filter.Labels) == 0} {
		if fl.Changed(name) && empty {
			return invalidFlag("--"+name, "", "must not be empty")
		}
	}
	for _, name := range s.explicit {
		if fl.Changed(name) {
			return fmt.Errorf("--%s requires JOB and can't be used with --%s", name, set)
		}
	}
	return checkJobFilter(&s.filter)
}

// targets lists what the arguments or the filters select.
func (s *jobSelector) targets(ctx context.Context, a *app, c *client.Client, args []string) ([]target, error) {
	if s.filtered {
		return s.matches(ctx, c)
	}
	var all []target
	if s.grouped {
		selected, err := a.selections(ctx, c, args)
		for _, one := range selected {
			all = append(all, target{selection: one})
		}
		return all, err
	}
	seen := make(map[jobRef]bool, len(args))
	for _, arg := range args {
		r, err := a.ref(ctx, c, arg)
		if err != nil {
			return nil, err
		}
		if id := (jobRef{job: r.job, task: r.task}); !seen[id] {
			seen[id] = true
			all = append(all, target{selection: selection{jobRef: r}})
		}
	}
	return all, nil
}

// matches lists the jobs that match the filters. All are listed before one is changed, so
// that what the user confirms is what is changed. A job takes about 100 bytes.
func (s *jobSelector) matches(ctx context.Context, c *client.Client) ([]target, error) {
	f := s.filter
	f.Changeable = true
	if len(f.States) == 0 {
		f.States = s.usual
	}
	names := make(map[string]string) // most jobs share their name with others
	var all []target
	for job, err := range c.Jobs(ctx, f) {
		if err != nil {
			return nil, err
		}
		name, known := names[job.GetName()]
		if !known {
			name = job.GetName()
			names[name] = name
		}
		all = append(all, target{selection{jobRef: jobRef{job: job.GetId(), name: name}}, job.GetState()})
	}
	return all, nil
}

// maxConfirmedJobs is how many jobs a question names.
const maxConfirmedJobs = 10

// confirm asks the user about the jobs that match filters.
func (s *jobSelector) confirm(o *output, verb string, all []target) (bool, error) {
	if !s.filtered || len(all) == 0 {
		return true, nil
	}
	return s.ask(o, verb+" "+show.Plural(len(all), "job"), func() { s.describe(o, all) })
}

// describe prints the jobs that the user is asked about, or the first of many.
func (s *jobSelector) describe(o *output, all []target) {
	for i := range all[:min(len(all), maxConfirmedJobs)] {
		o.warn("  %s: %s", all[i].describe(), document.JobState(all[i].state))
	}
	if more := len(all) - maxConfirmedJobs; more > 0 {
		o.warn("  … and %s", show.Plural(more, "more job"))
	}
}

// outdated reports whether a job no longer matches the filters, which is why it could not
// be changed, and in which state it is; 0 = it has expired.
func (s *jobSelector) outdated(ctx context.Context, c *client.Client, t *target, err error) (state dtaskv1.JobState, yes bool) {
	if !s.filtered || !errors.Is(err, client.ErrConflict) && !errors.Is(err, client.ErrNotFound) {
		return 0, false
	}
	job, err := c.Job(ctx, t.job, client.ReadOptions{})
	switch {
	case errors.Is(err, client.ErrNotFound):
		return 0, true
	case err != nil:
		return 0, false
	}
	states := s.filter.States
	if len(states) == 0 {
		states = s.usual
	}
	return job.GetState(), !slices.Contains(states, job.GetState())
}

// inspect reads the state of a target for a dry run. The error is ErrNotFound if the job
// or a task is unknown, and ErrConflict if the command can't change a job in this state.
func (s *jobSelector) inspect(ctx context.Context, c *client.Client, t *target) error {
	if t.state != 0 {
		return nil // it was read with the filters
	}
	job, err := c.Job(ctx, t.job, client.ReadOptions{})
	if err != nil {
		return err
	}
	t.name, t.state = job.GetName(), job.GetState()
	tasks := t.tasks
	if t.task != "" {
		tasks = []string{t.task}
	}
	for _, task := range tasks {
		if _, _, err := c.MostUrgentTasks(ctx, t.job, client.TaskFilter{Task: task}, 1); err != nil {
			return err
		}
	}
	if !slices.Contains(s.possible, t.state) {
		return &client.Error{Kind: client.ErrConflict, Message: "the job " + statetext.Predicate(document.JobState(t.state))}
	}
	return nil
}
