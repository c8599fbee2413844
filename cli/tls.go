package cli

import "github.com/spf13/cobra"

func newTLS(a *app) *cobra.Command {
	return newNoun("tls", "Create the CA of a cluster and issue certificates",
		"  dtaskctl tls init ca\n  dtaskctl tls issue --ca ca --replica n1 --san m1",
		newTLSInit(a), newTLSIssue(a))
}
