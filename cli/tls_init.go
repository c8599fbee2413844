package cli

import (
	"cmp"
	"encoding/hex"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/internal/tlsconf"
)

func newTLSInit(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "init DIR",
		Short: "Create the CA of a cluster",
		Long: `Create the CA of a cluster: ca.crt and ca.key in DIR, valid for ten years. It needs no
cluster. A machine with ca.key can become a coordinator: keep it where certificates are
issued, and nowhere else. Clients and workers need ca.crt only, which is public.

The CA names the cluster that its replicas will found. To give certificates to a cluster
that runs without TLS, use --cluster-id with its ID.`,
		Example: `  dtaskctl tls init ca
  dtaskctl tls init ca --cluster-id 0123456789abcdef0123456789abcdef`,
		Args: argCount(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			if args[0] == "" {
				return usage(errors.New("DIR must not be empty"))
			}
			ca, err := tlsconf.NewCA(cmp.Or(a.cluster, tlsconf.NewClusterID()), a.now())
			if err != nil {
				return usage(err)
			}
			if err := ca.Save(a.created(args[0])); err != nil {
				return err
			}
			id, err := ca.ClusterID()
			if err != nil {
				return err
			}
			hash := tlsconf.KeyHash(ca.Cert)
			doc := document.CreatedCA{
				Dir: args[0], ClusterID: id, KeyHash: "sha256:" + hex.EncodeToString(hash[:]), ExpiresAt: certTime(ca.Cert.NotAfter),
			}
			return a.print(lines(doc,
				"created ca.crt and ca.key in "+args[0]+", valid until "+doc.ExpiresAt,
				"cluster  "+doc.ClusterID,
				"key      "+doc.KeyHash,
				"",
				"Next: dtaskctl tls issue --ca "+args[0]+" --replica n1 --san HOST"))
		},
	}
}

// certTime is how documents write the end of a certificate.
func certTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
