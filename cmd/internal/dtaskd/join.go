package dtaskd

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const joinLong = `Add this machine to a cluster as a coordinator, with a join string of its dtaskd init or of
dtaskctl join-token create coordinator.

It checks that the coordinators at the addresses in the string have the authority that the
string names, before it sends the string's secret. The cluster then chooses a server id
and issues a certificate; the settings are stored in DATA-DIR/dtaskd.yaml. Once this
coordinator runs, the cluster adds it, first without a vote, and with one as soon as it
has the log.

With --replace n2 it takes the place of n2, whose machine is lost: the cluster removes
n2 when this coordinator starts, and adds this one. A coordinator that still runs is not
replaced.

STRING may be - to read the string from stdin, or @FILE to read it from a file, so that
other users of this machine can't see it in the list of processes.`

func joinCommand(stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	s := new(setupFlags)
	var replace string
	cmd := &cobra.Command{
		Use:   "join STRING",
		Short: "Add this machine to a cluster as a coordinator",
		Long:  joinLong,
		Example: `  sudo dtaskd join dtj1-… --advertise m2:7460 --now
  sudo dtaskd join @/run/join --advertise m2:7460 --now
  sudo dtaskd join dtj1-… --replace n2 --advertise m4:7460 --now`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &program.UsageError{Err: fmt.Errorf("want one join string, - or @FILE, and got %d arguments: the string has no spaces", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := program.ReadSecret(args[0], stdin)
			if err != nil {
				return &program.UsageError{Err: err}
			}
			j, err := client.ParseJoinString(client.Secret(text), auth.JoinCoordinator.String())
			if errors.Is(err, client.ErrRefused) {
				return &refusedError{err}
			}
			if err != nil {
				return &program.UsageError{Err: err}
			}
			if err := s.check(); err != nil {
				return err
			}
			return runJoin(cmd.Context(), s, replace, j, stdout, stderr)
		},
	}
	s.bind(cmd.Flags())
	cmd.Flags().StringVar(&replace, "replace", "", "server id of a lost coordinator whose place this one takes, such as n2")
	return cmd
}

func runJoin(ctx context.Context, s *setupFlags, replace string, j client.JoinString, stdout, stderr io.Writer) error {
	var path, id string
	err := s.create(ctx, func() (err error) {
		id, path, err = joinCluster(ctx, s, replace, j)
		return err
	})
	if err != nil {
		return err
	}
	if !s.now {
		_, err := fmt.Fprintf(stdout, "Coordinator %s of cluster %s was created. It becomes a member when it runs:\n  dtaskd --config %s\n", id, j.Cluster(), quoteWord(path))
		return err
	}
	cfg, err := loadSettings(path, s.logLevel, stderr)
	if err != nil {
		return err
	}
	return runWith(ctx, cfg, true, func(ctx context.Context, c *client.Client) error {
		if err := awaitVote(ctx, c, id); err != nil || ctx.Err() != nil {
			return err
		}
		_, err := fmt.Fprintf(stdout, "Coordinator %s of cluster %s runs at %s, and has a vote. Restart it with\n  dtaskd --config %s\n", id, j.Cluster(), s.advertise, quoteWord(path))
		return err
	})
}

// joinCluster gets a server id and a certificate, and stores them.
func joinCluster(ctx context.Context, s *setupFlags, replace string, j client.JoinString) (id, path string, err error) {
	key, err := tlsconf.NewKey()
	if err != nil {
		return "", "", err
	}
	own, err := tlsconf.SelfSigned(key)
	if err != nil {
		return "", "", err
	}
	resp, err := client.JoinCoordinator(ctx, client.Config{UserAgent: "dtaskd"}, j, &own, s.hosts, replace)
	if errors.Is(err, client.ErrRefused) {
		return "", "", &refusedError{err}
	}
	if err != nil {
		return "", "", err
	}
	id = resp.GetIdentity().GetName()
	if resp.GetReplaces() != replace {
		return "", "", &refusedError{fmt.Errorf("the leader runs a version of dtask without --replace: join without it, and run dtaskctl cluster remove %s", replace)}
	}
	cert, roots, err := joined(j, resp)
	if err != nil {
		return "", "", fmt.Errorf("joining the cluster: %w", err)
	}
	dir := filepath.Join(s.dataDir, tlsDir)
	if len(resp.GetCaKey()) > 0 {
		ca, err := tlsconf.ParseCA(roots, resp.GetCaKey())
		if err == nil {
			err = ca.Save(dir)
		}
		if err != nil {
			return "", "", fmt.Errorf("joining the cluster: %w", err)
		}
	}
	if err := tlsconf.Save(dir, cert, key, roots...); err != nil {
		return "", "", err
	}
	settings := s.settings(id, peersOf(resp, id, s.advertise))
	settings.Replace = replace
	path, err = settings.write()
	return id, path, err
}

// joined returns what a cluster issued, if it is what the join string promises.
func joined(j client.JoinString, resp *dtaskv1.JoinResponse) (cert *x509.Certificate, roots []*x509.Certificate, err error) {
	if cert, err = x509.ParseCertificate(resp.GetCertificate()); err != nil {
		return nil, nil, fmt.Errorf("the cluster sent a malformed certificate: %w", err)
	}
	trusted := false
	for _, der := range resp.GetRoots() {
		root, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, nil, fmt.Errorf("the cluster sent a malformed authority: %w", err)
		}
		hash := tlsconf.KeyHash(root)
		trusted = trusted || j.Pins(hash)
		roots = append(roots, root)
	}
	if cluster, _, err := tlsconf.PeerID(cert); err != nil || cluster != j.Cluster() || !trusted {
		return nil, nil, errors.Join(errors.New("the cluster sent a certificate of another cluster"), err)
	}
	return cert, roots, nil
}

// peersOf are the members of the cluster, and this coordinator, for --peers.
func peersOf(resp *dtaskv1.JoinResponse, id, advertise string) []string {
	var peers []string
	for _, m := range resp.GetMembers() {
		if m.GetServerId() != id && m.GetServerId() != resp.GetReplaces() {
			peers = append(peers, m.GetServerId()+"="+m.GetAddress())
		}
	}
	return append(peers, id+"="+advertise)
}

// refusedError ends the program with the exit code of a refusal.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// awaitVote returns when the coordinator is a voter, or ctx is done.
func awaitVote(ctx context.Context, c *client.Client, id string) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		status, err := c.ClusterStatus(ctx)
		if err == nil {
			for _, m := range status.GetMembers() {
				if m.GetId() == id && m.GetVoter() {
					return nil
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}
