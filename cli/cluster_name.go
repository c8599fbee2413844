package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/document"
)

func newClusterName(a *app) *cobra.Command {
	var remove bool
	cmd := &cobra.Command{
		Use:   "name [NAME]",
		Short: "Show, change or remove the name of the cluster",
		Long: `Show the name of the cluster, or give it another one: 1–63 letters, digits and dashes. The
name is for people and dashboards: it is in dtaskctl cluster status, in the metric
dtask_cluster_info, and in join strings for users and coordinators, by which dtaskctl login
names the context. Programs recognize the cluster by its ID, which stays. Only admins may
change the name.`,
		Example: `  dtaskctl cluster name
  dtaskctl cluster name eu-prod
  dtaskctl cluster name --remove`,
		Args: argCount(0, 1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := ""
		switch {
		case remove && len(args) > 0:
			return usagef("--remove takes no NAME")
		case len(args) > 0:
			name = args[0]
			if err := auth.CheckClusterName(name); err != nil {
				return usage(err)
			}
		}
		return a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			if !remove && name == "" {
				return showClusterName(ctx, c)
			}
			got, err := c.SetClusterName(ctx, name)
			if err != nil {
				return view{}, err
			}
			text := "the cluster is called " + name
			switch {
			case remove && got.GetAlready():
				text = "nothing to remove: the cluster has no name"
			case remove:
				text = "the cluster has no name"
			case got.GetAlready():
				text += ", as before"
			}
			return lines(document.NewNamedCluster(name, got), text), nil
		})(cmd, args)
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the name")
	return cmd
}

// showClusterName shows the name, as a coordinator knows it.
func showClusterName(ctx context.Context, c *client.Client) (view, error) {
	status, err := c.ClusterStatus(ctx)
	if err != nil {
		return view{}, err
	}
	text := show.Clean(status.GetName())
	if text == "" {
		text = "the cluster has no name: dtaskctl cluster name NAME gives it one"
	}
	return lines(document.NewNamedCluster(status.GetName(), nil), text), nil
}
