package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// voterPollInterval is how often --wait reads the cluster's status.
const voterPollInterval = 50 * time.Millisecond

func newClusterAdd(a *app) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "add ID HOST:PORT",
		Short: "Add a coordinator as a non-voter",
		Long: `Add a coordinator as a non-voter; it becomes a voter after it has caught up. Start the
new coordinator first, with an empty data directory, an ID that was never used, and
--peers that lists the members and itself. Two coordinators can catch up at the same time;
other changes are rejected until they have.`,
		Example: `  dtaskctl cluster add n4 10.0.0.4:7460 --wait`,
		Args:    argCount(2, 2),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			voter, err := c.AddMember(ctx, args[0], args[1])
			if err == nil && wait && !voter {
				voter, err = true, awaitVoter(ctx, c, args[0], a.timeout)
			}
			if err != nil {
				return view{}, err
			}
			text := " added as a non-voter; dtaskctl cluster status shows when it is a voter"
			if voter {
				text = " is a voter"
			}
			return lines(document.AddedMember{ID: args[0], Address: args[1], Voter: voter},
				args[0]+text), nil
		}),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it is a voter, for at most --timeout")
	return cmd
}

// awaitVoter waits until a coordinator is a voter.
func awaitVoter(ctx context.Context, c *client.Client, id string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout,
		&client.Error{
			Kind:    client.ErrUnreachable,
			Message: id + " was added but is not a voter yet: see dtaskctl cluster status",
		})
	defer cancel()
	tick := time.NewTicker(voterPollInterval)
	defer tick.Stop()
	for {
		status, err := c.ClusterStatus(ctx)
		if err == nil && slices.ContainsFunc(status.GetMembers(), func(m *dtaskv1.Member) bool { return m.GetId() == id && m.GetVoter() }) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
