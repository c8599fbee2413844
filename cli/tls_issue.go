package cli

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/internal/tlsconf"
)

// maxCertDays bounds --days; a CA is valid for ten years.
const maxCertDays = 3650

func newTLSIssue(a *app) *cobra.Command {
	var ca, replica, out string
	var sans []string
	var days int
	cmd := &cobra.Command{
		Use:   "issue --ca DIR --replica ID",
		Short: "Issue the certificate of a coordinator",
		Long: `Issue the certificate of the coordinator with the server id ID: tls.crt, tls.key and
ca.crt, in a directory for dtaskd --tls-dir. It needs no cluster. To renew a certificate,
issue it again into the same directory: a running dtaskd uses it within seconds. The key
in that directory stays, because the cluster knows it if the coordinator joined with a
join string.

dtask itself doesn't check host names. --san is for Prometheus and browsers, which do.`,
		Example: `  dtaskctl tls issue --ca ca --replica n1 --san m1,10.0.0.1
  dtaskctl tls issue --ca ca --replica n2 --out /etc/dtask/tls --days 30`,
		Args: noArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			if ca == "" || replica == "" {
				return usage(errors.New("--ca and --replica are required"))
			}
			hosts := splitHosts(sans)
			doc, err := a.issue(ca, cmp.Or(out, replica), tlsconf.ReplicaRequest{
				ServerID: replica, Hosts: hosts, ClusterID: a.cluster, Validity: time.Duration(days) * 24 * time.Hour,
			})
			if err != nil {
				return err
			}
			return a.print(lines(doc,
				"issued tls.crt, tls.key and ca.crt in "+doc.Dir+", valid until "+doc.ExpiresAt,
				"replica  "+doc.ServerID,
				"cluster  "+doc.ClusterID,
				"hosts    "+cmp.Or(strings.Join(hosts, ", "), "-"),
				"",
				"Next: dtaskd --id "+replica+" --tls-dir "+doc.Dir+" on its machine"))
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&ca, "ca", "", "`DIR` of dtaskctl tls init")
	fl.StringVar(&replica, "replica", "", "server `ID` of the coordinator (dtaskd --id)")
	fl.StringArrayVar(&sans, "san", nil, "DNS names and IP addresses of the coordinator, `HOST`, comma-separated or repeated")
	fl.StringVar(&out, "out", "", "`DIR` for the files, created if missing (default: the server id)")
	bind(fl, &days, "days", "90", "validity in `DAYS`", integer[int](1, maxCertDays))
	return cmd
}

// splitHosts splits the values of --san.
func splitHosts(sans []string) []string {
	var hosts []string
	for _, list := range sans {
		for host := range strings.SplitSeq(list, ",") {
			if host = strings.TrimSpace(host); host != "" {
				hosts = append(hosts, host)
			}
		}
	}
	return hosts
}

// issue writes a certificate to a directory.
func (a *app) issue(caDir, out string, r tlsconf.ReplicaRequest) (document.IssuedCertificate, error) {
	var none document.IssuedCertificate
	ca, err := tlsconf.LoadCA(a.created(caDir))
	if err != nil {
		return none, err
	}
	key, err := tlsconf.OpenKey(a.created(out))
	if err != nil {
		return none, err
	}
	r.Key = key.Public()
	cert, err := ca.IssueReplica(r, a.now())
	if err != nil {
		return none, usage(err)
	}
	clusterID, serverID, err := tlsconf.PeerID(cert)
	if err != nil {
		return none, err
	}
	if err := tlsconf.Save(a.created(out), cert, key, ca.Roots...); err != nil {
		return none, err
	}
	return document.IssuedCertificate{
		Dir: out, ClusterID: clusterID, ServerID: serverID, Hosts: append([]string{}, r.Hosts...), ExpiresAt: certTime(cert.NotAfter),
	}, nil
}
