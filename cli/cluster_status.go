package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newCluster(a *app) *cobra.Command {
	return newNoun("cluster", "Look at the coordinators", "  dtaskctl cluster status", newClusterStatus(a))
}

func newClusterStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the coordinators and who leads; works without a leader",
		Example: `  dtaskctl cluster status
  dtaskctl --addr 10.0.0.1:7460,10.0.0.2:7460 cluster status -o json`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			status, err := c.ClusterStatus(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(show.ClusterOf(status), func(w io.Writer) error { return a.clusterTable(w, status) })
		},
	}
}

// clusterTable shows a cluster to people.
func (a *app) clusterTable(w io.Writer, s *dtaskv1.StatusResponse) error {
	leader := "no leader"
	if s.GetLeader() != "" {
		leader = "leader " + show.Clean(s.GetLeader())
	}
	if _, err := fmt.Fprintf(w, "%s, term %d\n", leader, s.GetTerm()); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	if s.GetAlarm() != "" {
		a.line("ALARM: %s", show.Clean(s.GetAlarm()))
	}
	t := show.NewTable(a.paint(w), "ID", "ADDRESS", "STATE", "APPLIED", "LAG", "VERSION")
	for _, m := range s.GetMembers() {
		t.Row(m.GetId(), m.GetAddress(), m.GetState(), fmt.Sprint(m.GetApplied()), fmt.Sprint(m.GetLag()), m.GetVersion())
	}
	return t.Write(w)
}
