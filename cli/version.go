package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/buildinfo"
	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/internal/zoneinfo"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of dtaskctl and the coordinator",
		Example: "  dtaskctl version",
		Args:    noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			doc, server := document.Versions{Client: buildinfo.Version(), TimeZones: zoneinfo.Version()}, "not reachable"
			if got, err := c.Identify(ctx); err == nil {
				doc.Server = new(got.GetVersion())
				server = fmt.Sprintf("%s (%s)", show.Clean(got.GetVersion()),
					show.Clean(got.GetServerId()))
			}
			return lines(doc, "dtaskctl     "+doc.Client, "coordinator  "+server, "time zones   "+doc.TimeZones), nil
		}),
	}
}
