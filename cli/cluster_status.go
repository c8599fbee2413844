package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newCluster(a *app) *cobra.Command {
	return newNoun("cluster", "Look at the coordinators, add and remove them", "  dtaskctl cluster status\n  dtaskctl cluster add n4 10.0.0.4:7460",
		newClusterStatus(a), newClusterAdd(a), newClusterRemove(a), newClusterTransfer(a))
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
			return a.print(document.NewCluster(status), func(w io.Writer) error { return a.clusterTable(w, status) })
		},
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
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
	t := show.NewTable(a.paint(w), "ID", "ADDRESS", "STATE", "VOTER", "APPLIED", "LAG", "VERSION")
	for _, m := range s.GetMembers() {
		t.Row(m.GetId(), m.GetAddress(), m.GetState(), yesNo(m.GetVoter()), fmt.Sprint(m.GetApplied()), fmt.Sprint(m.GetLag()), m.GetVersion())
	}
	return t.Write(w)
}
