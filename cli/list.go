package cli

import (
	"context"
	"errors"
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
	var f client.JobFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs, newest first",
		Long: `List jobs, newest first, including finished jobs from history. A coordinator whose
history was rebuilt fetches finished jobs from the others, and reports an incomplete
list until it has them ("incomplete" in JSON).`,
		Example: `  dtaskctl list
  dtaskctl list --state running --state pending
  dtaskctl list --name nightly --label team=data --limit 10 -o json
  dtaskctl list -q --state failed
  dtaskctl list --since 24h --state failed
  dtaskctl list --since 2026-05-01T00:00:00Z --until 2026-05-02T00:00:00Z --limit 0`,
		Args: noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			if !f.Since.IsZero() && !f.Before.IsZero() && !f.Since.Before(f.Before) {
				return view{}, usagef("invalid --since: must be before --until")
			}
			incomplete := false
			f.Incomplete = func() { incomplete = true }
			jobs, err := collect(c.Jobs(ctx, f))
			if err != nil {
				return view{}, err
			}
			if incomplete && a.textOutput() {
				a.warn("The list is incomplete: this coordinator is still fetching finished jobs.")
			}
			if a.quiet {
				return view{}, a.printIDs(jobIDs(jobs))
			}
			return view{
				doc:  document.NewJobs(jobs, incomplete),
				text: func(p *show.Printer) { p.Jobs(jobs) },
			}, nil
		}),
	}
	fl, parse := cmd.Flags(), pastTime(a.now)
	fl.Func("state", "only jobs in this `STATE`: pending, running, completed, failed or cancelled (comma-separated or repeated)", func(text string) error {
		states, err := parseJobStates(text)
		f.States = append(f.States, states...)
		return err
	})
	fl.StringVar(&f.Name, "name", "", "only jobs with this `NAME`")
	fl.StringVar(&f.Owner, "owner", "", "only jobs of this `OWNER`")
	fl.StringToStringVar(&f.Labels, "label", nil,
		"only jobs with this label `KEY=VALUE` (repeated: all must match)")
	fl.Lookup("label").DefValue = "" // otherwise help shows (default [])
	bind(fl, &f.Since, "since", "", "only jobs submitted at this `TIME` or later: 2026-05-01T12:00:00Z, or a duration before now such as 2h", parse)
	bind(fl, &f.Before, "until", "", "only jobs submitted before this `TIME`", parse)
	bindLimit(fl, &f.Limit, "jobs")
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "print IDs only")
	return cmd
}

// pastTime parses a time, or a duration before now.
func pastTime(now func() time.Time) func(string) (time.Time, error) {
	return func(text string) (time.Time, error) {
		if d, err := spec.ParseDuration(text); err == nil {
			text = now().Add(-d).UTC().Format(time.RFC3339Nano)
		}
		return timestamp(text)
	}
}

// parseJobStates parses comma-separated states.
func parseJobStates(text string) ([]dtaskv1.JobState, error) {
	var states []dtaskv1.JobState
	for name := range strings.SplitSeq(text, ",") {
		v := dtaskv1.JobState_value["JOB_STATE_"+strings.ToUpper(name)]
		if v == 0 {
			return nil, errors.New("must be pending, running, completed, failed or cancelled")
		}
		states = append(states, dtaskv1.JobState(v))
	}
	return states, nil
}

func jobIDs(jobs []*dtaskv1.Job) []string {
	ids := make([]string, 0, len(jobs))
	for _, j := range jobs {
		ids = append(ids, j.GetId())
	}
	return ids
}
