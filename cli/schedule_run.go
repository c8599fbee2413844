package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newScheduleRun(a *app) *cobra.Command {
	var (
		n    client.ScheduleName
		key  string
		wait bool
	)
	cmd := &cobra.Command{
		Use:   "run NAME",
		Short: "Start a run of a schedule now",
		Long: `Start a run of a schedule now, also of one that is paused. The next tick fires all the
same. The rule for overlaps holds: with overlap: skip, the exit code is 5 if an earlier
run has not ended. The new job becomes @last.`,
		Example: `  dtaskctl schedule run nightly
  dtaskctl schedule run nightly --wait
  dtaskctl schedule run nightly --idempotency-key monday`,
		Args: oneArg,
		RunE: a.onSchedule(&n, func(ctx context.Context, c *client.Client) (view, error) {
			got, err := c.RunSchedule(ctx, n, key)
			if err != nil {
				return view{}, err
			}
			a.remember(c, got.Job)
			line := fmt.Sprintf("job %s started: a run of schedule %s", got.Job, show.Clean(n.Name))
			if got.Existed {
				line += ", started earlier with this key"
			}
			return a.submitted(ctx, c, document.Submission{ID: got.Job, Existed: got.Existed, TasksTotal: int(got.Tasks)}, line, wait)
		}),
	}
	fl := cmd.Flags()
	fl.StringVar(&key, "idempotency-key", "", "idempotency `KEY`; repeating it starts one run")
	fl.BoolVar(&wait, "wait", false, "wait until the job finishes (exit code 1 unless it completed)")
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "print the ID of the job only")
	bindScheduleNamespace(fl, &n)
	return cmd
}

// backfillError names the flags of a backfill whose period is invalid, and the key of one of
// which some runs may have started.
func backfillError(err error) error {
	if details, ok := errors.AsType[*client.Error](err); ok {
		for i, fault := range details.Faults {
			if rest, ok := strings.CutPrefix(fault, "invalid to "); ok {
				details.Faults[i] = "invalid --to " + rest
			}
			if rest, ok := strings.CutPrefix(fault, "invalid period: "); ok {
				details.Faults[i] = "invalid period from --from to --to: " + rest
			}
		}
	}
	if details, ok := errors.AsType[*client.Error](err); ok && details.Key != "" && (details.Unknown || errors.Is(err, client.ErrBusy)) {
		return withHint(err, "some runs may have started: to start the others, repeat with --idempotency-key %s", details.Key)
	}
	return err
}

func newScheduleBackfill(a *app) *cobra.Command {
	var (
		n        client.ScheduleName
		from, to time.Time
		key      string
	)
	cmd := &cobra.Command{
		Use:   "backfill NAME --from TIME --to TIME",
		Short: "Start a run for each tick of a past period",
		Long: `Start a run for each tick of a period in the past, whether it ran before or not, the
oldest first, at most 100. DTASK_SCHEDULED_AT of each is its tick. The runs wait for each
other, unless the schedule has overlap: allow.

If the command ends early, repeat it with the same --idempotency-key: it starts the runs
that are missing.`,
		Example: `  dtaskctl schedule backfill nightly --from 2026-05-01T00:00:00Z --to 2026-05-07T00:00:00Z
  dtaskctl schedule backfill nightly --from 2026-05-01T02:30:00+02:00 --to 2026-05-01T02:30:00+02:00`,
		Args: func(cmd *cobra.Command, args []string) error {
			for _, name := range []string{"from", "to"} {
				if !cmd.Flags().Changed(name) {
					return fmt.Errorf("missing --%s: name the period with --from and --to", name)
				}
			}
			if to.Before(from) {
				return errors.New("--to is before --from")
			}
			return oneArg(cmd, args)
		},
		RunE: a.onSchedule(&n, func(ctx context.Context, c *client.Client) (view, error) {
			runs, err := c.BackfillSchedule(ctx, n, from, to, key)
			if err != nil {
				return view{}, backfillError(err)
			}
			if a.quiet && a.textOutput() {
				var ids []string
				for _, r := range runs {
					ids = append(ids, r.GetJob())
				}
				return view{}, a.printIDs(ids)
			}
			return view{doc: document.NewScheduleBackfill(runs), text: func(p *show.Printer) { p.Backfill(runs) }}, nil
		}),
	}
	fl := cmd.Flags()
	bind(fl, &from, "from", "", "first `TIME` of the period, such as 2026-05-01T12:00:00Z", instant)
	bind(fl, &to, "to", "", "last `TIME` of the period", instant)
	fl.StringVar(&key, "idempotency-key", "", "idempotency `KEY`; repeating it starts the runs that are missing")
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "print the IDs of the jobs only")
	bindScheduleNamespace(fl, &n)
	return cmd
}
