package cli

import "github.com/spf13/cobra"

func newTLS(a *app) *cobra.Command {
	return newNoun("tls", "Create and replace the CA, issue certificates",
		"  dtaskctl tls init ca\n  dtaskctl tls issue --ca ca --replica n1 --san m1\n  dtaskctl tls status\n  dtaskctl tls rotate-ca",
		newTLSInit(a), newTLSIssue(a), newTLSStatus(a), newTLSRotateCA(a))
}
