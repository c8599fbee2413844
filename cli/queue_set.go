package cli

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

func newQueueSet(a *app) *cobra.Command {
	var (
		s            dtaskv1.QueueSettings
		most, labels pairs
		rate         spec.Rate
		version      uint32
	)
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make a queue, or replace its settings",
		Long: `Make a queue, or replace all settings of one: those without a flag get their defaults. The
new settings apply to the tasks that wait, from the next start on. Tasks that run
continue. A queue that is paused stays paused. The queue default exists without being
set.

While several queues have tasks waiting, each gets the share of the cluster that its
weight has among theirs.`,
		Example: `  dtaskctl queue set etl --weight 3 --max-running 200
  dtaskctl queue set ml --max gpu=4 --require pool=ml
  dtaskctl queue set web --submit-rate 50/s --submit-burst 100 --if-version 2`,
		Args: oneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if s.GetSubmitBurst() > 0 && rate.N == 0 {
				return usagef("--submit-burst requires --submit-rate")
			}
			s.SubmitRate, s.SubmitPeriodMs = rate.N, rate.PeriodMS
			s.Require, s.Max = labels.values, nil
			for name, text := range most.values {
				amount, err := spec.ParseAmount(name, text)
				if err != nil {
					return usagef("invalid --max %s=%s: %w", name, text, err)
				}
				if s.Max == nil {
					s.Max = make(map[string]int64)
				}
				s.Max[name] = amount
			}
			if err := spec.CheckQueue(args[0], &s); err != nil {
				return usagef("invalid queue: %w", err)
			}
			return a.onQueue(func(ctx context.Context, c *client.Client, name string) (view, error) {
				q, err := c.SetQueue(ctx, name, &s, version)
				if errors.Is(err, client.ErrInvalid) {
					return view{}, &commandError{err: err, code: exitUsage}
				}
				if err != nil {
					return view{}, err
				}
				a.warnMissingResources(ctx, c, s.GetMax())
				state := ""
				if q.GetPausedAt() != 0 {
					state = "; it is paused"
				}
				line := fmt.Sprintf("queue %s set: version %d%s", show.Clean(q.GetName()), q.GetVersion(), state)
				return lines(document.NewQueue(q), line), nil
			})(cmd, args)
		},
	}
	fl := cmd.Flags()
	bind(fl, &s.Weight, "weight", "1", "`WEIGHT` of the queue among those with waiting tasks, 1 to 10000", integer[uint32](1, spec.MaxQueueWeight))
	bind(fl, &s.MaxRunning, "max-running", "", "maximum `N` of running tasks (default: unlimited)", integer[uint32](1, math.MaxInt32))
	fl.Var(&most, "max", "maximum of a resource that running tasks take, `NAME=AMOUNT`, such as gpu=4 or memory=64GiB (repeatable)")
	fl.Var(&labels, "require", "label that tasks of the queue require of a worker, `NAME=VALUE` (repeatable)")
	bindRate(fl, &rate, "submit-rate", "submissions")
	bind(fl, &s.SubmitBurst, "submit-burst", "", "maximum `N` of jobs submitted at once (default: 1; requires --submit-rate)", integer[uint32](1, maxBurst))
	bind(fl, &version, "if-version", "", "set only if the queue has this `VERSION`, unless it has these settings already", integer[uint32](1, math.MaxUint32))
	return cmd
}
