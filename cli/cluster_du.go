package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newClusterDU(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "du",
		Short: "Show how much space each coordinator uses",
		Long: `Show the sizes of each coordinator's files, which are those of the log, snapshots, history
and audit log, of directories that were quarantined and of all others, and of its state by
kind of data, as a snapshot of it would have. It works without a leader. Only admins and
operators may.

Coordinators may differ: each one takes snapshots and compacts its log by itself.`,
		Example: `  dtaskctl cluster du
  dtaskctl cluster du -o json`,
		Args: noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			replicas, err := c.DiskUsage(ctx)
			if err != nil {
				return view{}, err
			}
			doc := document.DiskUsage{Replicas: []document.ReplicaUsage{}}
			var answers []*dtaskv1.DiskUsageResponse
			for _, r := range replicas {
				if r.Err != nil {
					a.noteSilent(r.ServerID, r.Err)
				} else {
					answers = append(answers, r.Usage)
				}
				doc.Replicas = append(doc.Replicas, document.NewReplicaUsage(r.ServerID, r.Address, r.Usage, r.Err))
			}
			return view{doc: doc, text: func(p *show.Printer) { p.DiskUsage(answers) }}, nil
		}),
	}
}

// noteSilent warns that a coordinator did not answer a question that all were asked.
func (a *app) noteSilent(id string, why error) {
	if id != "" {
		id += " "
	}
	a.report("warning: "+id+"did not answer: "+why.Error(), nil, "")
}
