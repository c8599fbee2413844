package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newList(a *app) *cobra.Command {
	var states []string
	var f client.JobFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs, newest first",
		Long: `List jobs, newest first, those that ended a while ago among them. A coordinator
that was rebuilt fetches these from the others, and says so until it has them ("incomplete" in JSON).`,
		Example: `  dtaskctl list
  dtaskctl list --state running --state pending
  dtaskctl list --name nightly --label team=data --limit 10 -o json
  dtaskctl list -q --state failed`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			parsed, err := jobStates(states)
			if err != nil {
				return &usageError{err: err, command: cmd.CommandPath()}
			}
			f.States = parsed
			if f.Limit < 0 {
				return &usageError{err: fmt.Errorf("--limit %d is negative", f.Limit), command: cmd.CommandPath()}
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			var jobs []*dtaskv1.Job
			var ids []string
			incomplete := false
			f.Incomplete = func() { incomplete = true }
			for job, err := range c.Jobs(cmd.Context(), f) {
				if err != nil {
					return err
				}
				jobs = append(jobs, job)
				ids = append(ids, job.GetId())
			}
			if incomplete && a.people() {
				a.line("This coordinator is still fetching its history: jobs that ended a while ago may be missing.")
			}
			if a.quiet {
				return a.ids(ids)
			}
			return a.print(show.Jobs{Jobs: show.JobsOf(jobs), Incomplete: incomplete}, func(w io.Writer) error { return a.jobsTable(w, jobs) })
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&states, "state", nil, "only jobs in this `STATE`: pending, running, completed, failed, cancelled (repeatable)")
	fl.StringVar(&f.Name, "name", "", "only jobs of this `NAME`")
	fl.StringVar(&f.Owner, "owner", "", "only jobs of this `OWNER`")
	fl.StringToStringVar(&f.Labels, "label", nil, "only jobs with this label `KEY=VALUE` (repeatable: all must match)")
	fl.IntVar(&f.Limit, "limit", 100, "at most `N` jobs; 0 = all")
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "print ids only")
	return cmd
}

// jobStates reads the names of states.
func jobStates(names []string) ([]dtaskv1.JobState, error) {
	var out []dtaskv1.JobState
	for _, name := range names {
		v, ok := dtaskv1.JobState_value["JOB_STATE_"+strings.ToUpper(name)]
		if !ok || v == 0 {
			return nil, fmt.Errorf("--state %q is not pending, running, completed, failed or cancelled", name)
		}
		out = append(out, dtaskv1.JobState(v))
	}
	return out, nil
}

// jobsTable shows jobs to people.
func (a *app) jobsTable(w io.Writer, jobs []*dtaskv1.Job) error {
	now := a.now()
	t := show.NewTable(a.paint(w), "ID", "NAME", "STATE", "TASKS", "FAILED", "PRIORITY", "OWNER", "SUBMITTED", "TOOK")
	for _, j := range jobs {
		t.Row(j.GetId(), j.GetName(), show.JobState(j.GetState()), fmt.Sprintf("%d/%d", j.GetTasksCompleted(), j.GetTasksTotal()),
			fmt.Sprint(j.GetTasksFailed()), show.Priority(j.GetPriority()), j.GetOwner(),
			show.Ago(j.GetSubmittedAt(), now), show.Took(j.GetStartedAt(), j.GetCompletedAt(), now))
	}
	return t.Write(w)
}
