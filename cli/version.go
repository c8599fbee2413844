package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
)

// versions is what `version` prints; server is null if nobody answers.
type versions struct {
	Client string  `json:"client"`
	Server *string `json:"server"`
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of dtaskctl and, if one answers, of a coordinator",
		Example: "  dtaskctl version",
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			v := versions{Client: client.Version()}
			server := "no coordinator answers"
			if who, err := c.Identify(cmd.Context()); err == nil {
				text := who.GetVersion()
				v.Server = &text
				server = fmt.Sprintf("%s (%s)", show.Clean(text), show.Clean(who.GetServerId()))
			}
			return a.print(v, func(w io.Writer) error {
				if _, err := fmt.Fprintf(w, "dtaskctl     %s\ncoordinator  %s\n", v.Client, server); err != nil {
					return fmt.Errorf("writing: %w", err)
				}
				return nil
			})
		},
	}
}
