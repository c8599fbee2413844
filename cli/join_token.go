package cli

import "github.com/spf13/cobra"

func newJoinToken(a *app) *cobra.Command {
	return newNoun("join-token", "Create, list and revoke join strings",
		"  dtaskctl join-token create worker\n  dtaskctl join-token list",
		newJoinTokenCreate(a), newJoinTokenList(a), newJoinTokenRevoke(a))
}
