package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

func newLimit(a *app) *cobra.Command {
	return newNoun("limit", "Limit how many tasks that use something run, or start", `  dtaskctl limit set export-api --running 8 --rate 50/s --burst 100
  dtaskctl limit set 'tenant/*' --running 2
  dtaskctl limit list
  dtaskctl limit show export-api`,
		newLimitSet(a), newLimitList(a), newLimitShow(a), newLimitDelete(a))
}

// onLimit runs a command about the limit that its argument names.
func (a *app) onLimit(do func(ctx context.Context, c *client.Client, name string) (view, error)) func(*cobra.Command, []string) error {
	return a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
		v, err := do(ctx, c, args[0])
		switch {
		case errors.Is(err, client.ErrNotFound):
			err = withHint(err, "%s", otherLimit(args[0], err))
		case errors.Is(err, client.ErrConflict) && strings.Contains(err.Error(), " is used by "):
			err = withHint(err, "dtaskctl wait JOB waits for a job; dtaskctl schedule show NAME shows a schedule")
		case errors.Is(err, client.ErrConflict):
			err = withHint(err, "dtaskctl limit show NAME shows its version")
		}
		return v, err
	})
}

// otherLimit is the hint of an error about an unknown limit. The name of one that tasks use may be
// a key of a limit.
func otherLimit(name string, err error) string {
	group, _, keyed := strings.Cut(name, "/")
	if limit := group + "/*"; keyed && strings.Contains(err.Error(), strconv.Quote(limit)) {
		return "dtaskctl limit show '" + limit + "' shows its keys"
	}
	return "dtaskctl limit list shows the limits"
}

func newLimitSet(a *app) *cobra.Command {
	var version uint32
	var rate spec.Rate
	s := &dtaskv1.LimitSettings{}
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make a limit, or change one",
		Long: `Make a limit, or change one. A task that names the limit in uses starts only while fewer
of these tasks run than it allows, and while its rate allows another start. A change takes
effect at once: running tasks continue, also if they are more than the limit then allows.
Settings that are left out are removed.

In any time t, at most BURST + RATE × t tasks are assigned to workers, also if the leader
changes: a new one begins as if the burst had just been used.

A name that ends in /* has a counter of its own for each key: of tenant/*, a task uses
tenant/acme.`,
		Example: `  dtaskctl limit set export-api --running 8
  dtaskctl limit set export-api --rate 50/s --burst 100
  dtaskctl limit set 'tenant/*' --running 2 --if-version 1`,
		Args: oneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case s.GetRunning() == 0 && rate.N == 0:
				return usagef("--running or --rate is required: a limit without them would allow everything")
			case s.GetBurst() > 0 && rate.N == 0:
				return usagef("--burst requires --rate")
			}
			s.Rate, s.PeriodMs = rate.N, rate.PeriodMS
			if err := spec.CheckLimit(args[0], s); err != nil {
				return usagef("invalid limit: %w", err)
			}
			return a.onLimit(func(ctx context.Context, c *client.Client, name string) (view, error) {
				l, err := c.SetLimit(ctx, name, s, version)
				if errors.Is(err, client.ErrInvalid) {
					return view{}, &commandError{err: err, code: exitUsage}
				}
				if err != nil {
					return view{}, err
				}
				return lines(document.NewLimit(l), fmt.Sprintf("limit %s set: version %d", show.Clean(l.GetName()), l.GetVersion())), nil
			})(cmd, args)
		},
	}
	fl := cmd.Flags()
	bind(fl, &s.Running, "running", "", "maximum `N` of tasks that run at once (default: unlimited)", integer[uint32](1, math.MaxInt32))
	bindRate(fl, &rate, "rate", "starts")
	bind(fl, &s.Burst, "burst", "", "maximum `N` of tasks that start at once (default: 1; requires --rate)", integer[uint32](1, maxBurst))
	bind(fl, &version, "if-version", "", "set only if the limit has this `VERSION`, unless it has these settings already", integer[uint32](1, math.MaxUint32))
	return cmd
}

func newLimitList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List limits with what runs and waits",
		Long: `List limits with the tasks that count towards them, and those that wait. The leader counts
them: with --stale, they may be missing.

` + staleHelp,
		Example: `  dtaskctl limit list
  dtaskctl limit list -o json`,
		Args: noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			all, err := c.Limits(ctx, a.readOptions())
			if err != nil {
				return view{}, err
			}
			if a.quiet {
				var names []string
				for _, l := range all {
					names = append(names, l.GetName())
				}
				return view{}, a.printIDs(names)
			}
			return view{doc: document.NewLimits(all), text: func(p *show.Printer) { p.Limits(all) }}, nil
		}),
	}
	a.bindStale(cmd.Flags())
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "print names only")
	return cmd
}

func newLimitShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a limit with its holders",
		Long: `Show a limit, the tasks that count towards it, and how many wait; of a limit that ends in
/*, for each key.

` + staleHelp,
		Example: `  dtaskctl limit show export-api
  dtaskctl limit show 'tenant/*' -o json`,
		Args: oneArg,
		RunE: a.onLimit(func(ctx context.Context, c *client.Client, name string) (view, error) {
			l, err := c.Limit(ctx, name, a.readOptions())
			if err != nil {
				return view{}, err
			}
			return view{doc: document.NewLimit(l), text: func(p *show.Printer) { p.Limit(l) }}, nil
		}),
	}
	a.bindStale(cmd.Flags())
	return cmd
}

func newLimitDelete(a *app) *cobra.Command {
	var version uint32
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a limit that no open job uses",
		Long: `Delete a limit. It must not be used by a job that has not ended, or by a schedule. A job
that has ended and is retried after that is not limited.`,
		Example: `  dtaskctl limit delete export-api
  dtaskctl limit delete 'tenant/*' --if-version 2`,
		Args: oneArg,
		RunE: a.onLimit(func(ctx context.Context, c *client.Client, name string) (view, error) {
			if err := c.DeleteLimit(ctx, name, version); err != nil {
				return view{}, err
			}
			return lines(document.DeletedLimit{Name: name, Deleted: true}, fmt.Sprintf("limit %s deleted", show.Clean(name))), nil
		}),
	}
	bind(cmd.Flags(), &version, "if-version", "", "delete only if the limit has this `VERSION`", integer[uint32](1, math.MaxUint32))
	return cmd
}
