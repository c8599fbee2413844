package cli

import "github.com/spf13/cobra"

func newLogout(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "Delete the context in use and its token",
		Long: `Delete the context in use, or that of --context, and its token from this machine. The
token itself stays valid until it expires or an admin revokes it.`,
		Example: "  dtaskctl logout\n  dtaskctl logout --context prod",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			all, saved, err := a.namedContext(nil)
			if err != nil {
				return err
			}
			return a.deleteContext(all, *saved)
		},
	}
}
