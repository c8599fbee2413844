package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

func newList(a *app) *cobra.Command {
	var states []string
	var since, until string
	var f client.JobFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs, newest first",
		Long: `List jobs, newest first, those that ended a while ago among them. A coordinator
that was rebuilt fetches these from the others, and says so until it has them ("incomplete" in JSON).`,
		Example: `  dtaskctl list
  dtaskctl list --state running --state pending
  dtaskctl list --name nightly --label team=data --limit 10 -o json
  dtaskctl list -q --state failed
  dtaskctl list --since 24h --state failed
  dtaskctl list --since 2026-05-01T00:00:00Z --until 2026-05-02T00:00:00Z --limit 0`,
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
			if f.Since, err = a.moment("since", since); err == nil {
				f.Before, err = a.moment("until", until)
			}
			if err == nil && since != "" && until != "" && !f.Since.Before(f.Before) {
				err = fmt.Errorf("--since %s is not before --until %s: no job can be between them", since, until)
			}
			if err != nil {
				return &usageError{err: err, command: cmd.CommandPath()}
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
			return a.print(document.NewJobs(jobs, incomplete), func(w io.Writer) error { return a.jobsTable(w, jobs) })
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&states, "state", nil, "only jobs in this `STATE`: pending, running, completed, failed, cancelled (repeatable)")
	fl.StringVar(&f.Name, "name", "", "only jobs of this `NAME`")
	fl.StringVar(&f.Owner, "owner", "", "only jobs of this `OWNER`")
	fl.StringToStringVar(&f.Labels, "label", nil, "only jobs with this label `KEY=VALUE` (repeatable: all must match)")
	fl.StringVar(&since, "since", "", "only jobs submitted at this `TIME` or later: 2026-05-01T12:00:00Z, or how long ago, such as 2h")
	fl.StringVar(&until, "until", "", "only jobs submitted before this `TIME`")
	fl.IntVar(&f.Limit, "limit", 100, "at most `N` jobs; 0 = all")
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "print ids only")
	return cmd
}

// moment reads a time, or a duration before now; none is the zero time.
func (a *app) moment(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		d, err := spec.ParseDuration(text)
		if err != nil {
			return time.Time{}, fmt.Errorf("--%s %q is neither a time like 2026-05-01T12:00:00Z nor a duration like 2h", flag, text)
		}
		at = a.now().Add(-d)
	}
	if at.UnixMilli() <= 0 {
		return time.Time{}, fmt.Errorf("--%s %s is too long ago", flag, text)
	}
	return at, nil
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
		t.Row(j.GetId(), j.GetName(), document.JobState(j.GetState()), fmt.Sprintf("%d/%d", j.GetTasksCompleted(), j.GetTasksTotal()),
			fmt.Sprint(j.GetTasksFailed()), document.Priority(j.GetPriority()), j.GetOwner(),
			show.Ago(j.GetSubmittedAt(), now), show.Took(j.GetStartedAt(), j.GetCompletedAt(), now))
	}
	return t.Write(w)
}
