package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newClusterStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the coordinators and the leader",
		Long: `Show the coordinators and the leader. It works without a leader.

LAG is how many entries a coordinator has still to apply, and how long ago the first of
them was made, if that is known. If the cluster has queues besides default, or that one has
settings, and a leader answers, one line has their number, those that are paused, and those
whose oldest tasks wait longest, if that is a second or more.`,
		Example: `  dtaskctl cluster status
  dtaskctl --addr 10.0.0.1:7460,10.0.0.2:7460 cluster status -o json`,
		Args: noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			status, err := c.ClusterStatus(ctx)
			if err != nil {
				return view{}, err
			}
			doc := document.NewCluster(status)
			doc.Queues = a.queueSummary(ctx, c, status)
			return view{doc: doc, text: func(p *show.Printer) { p.Cluster(status, doc.Queues) }}, nil
		}),
	}
}

// queuesTimeout is how long the status of a cluster waits for the leader's queues.
const queuesTimeout = time.Second

// queueSummary returns what the leader knows of the queues; nil if queues are not used, or
// no leader answers in time: the status must not depend on one.
func (a *app) queueSummary(ctx context.Context, c *client.Client, status *dtaskv1.StatusResponse) *document.QueueSummary {
	if status.GetLeader() == "" {
		return nil
	}
	ctx, cancel := a.optional(ctx, queuesTimeout)
	defer cancel()
	load, err := c.Load(ctx)
	if err != nil {
		return nil
	}
	return document.NewQueueSummary(load.GetQueues())
}
