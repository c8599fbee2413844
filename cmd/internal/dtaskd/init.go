package dtaskd

import (
	"context"
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
)

// levelPoll is how often init asks whether the cluster has its feature level.
const levelPoll = 20 * time.Millisecond

// firstTTL is how long the join strings that init prints are valid.
const firstTTL = time.Hour

const initLong = `Create a cluster with this machine as its first coordinator.

It makes the cluster's own certificate authority and a certificate for this coordinator,
stores the settings in DATA-DIR/dtaskd.yaml, starts, and prints three join strings: for
further coordinators, for workers, and for the first user, who becomes an administrator.
Each string is valid for an hour. It names this cluster's authority, so that its user
recognizes the cluster, and has a secret by which the cluster recognizes the user: give it
only to the machines that should join. dtaskctl join-token create makes more of them.

Without --now, the coordinator stops again: start it with dtaskd --config.

Administration needs no token on this machine: root and the coordinator's own user, who may
use DATA-DIR/dtaskd.sock, are administrators.`

func initCommand(stdout, stderr io.Writer) *cobra.Command {
	s := new(setupFlags)
	id, name := "", ""
	cmd := &cobra.Command{
		Use:     "init",
		Short:   "Create a cluster with this machine as its first coordinator",
		Long:    initLong,
		Example: `  sudo dtaskd init --advertise m1:7460 --now`,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			if err := auth.CheckClusterName(name); name != "" && err != nil {
				return &program.UsageError{Err: fmt.Errorf("--cluster-name: %w", err)}
			}
			return runInit(cmd.Context(), s, id, name, stdout, stderr)
		},
	}
	s.bind(cmd.Flags())
	cmd.Flags().StringVar(&name, "cluster-name", "", "name of the cluster for people and dashboards: letters, digits and -; dtaskctl cluster name changes it")
	cmd.Flags().StringVar(&id, "id", "n1", "server id of this coordinator; further ones are called n2, n3, …")
	return cmd
}

func runInit(ctx context.Context, s *setupFlags, id, name string, stdout, stderr io.Writer) error {
	var settings string
	clusterID := tlsconf.NewClusterID()
	err := s.create(ctx, func() (err error) {
		if err := issueFirst(filepath.Join(s.dataDir, tlsDir), clusterID, id, s.hosts); err != nil {
			return err
		}
		settings, err = s.settings(id, nil).write()
		return err
	})
	if err != nil {
		return err
	}
	cfg, err := loadSettings(settings, s.logLevel, stderr)
	if err != nil {
		return err
	}
	started := false
	err = runWith(ctx, cfg, s.now, func(ctx context.Context, c *client.Client) error {
		started = true
		joins, err := firstJoinStrings(ctx, c, name)
		if err != nil {
			return fmt.Errorf("the cluster was created, and its first join strings were not (dtaskctl --addr unix:%s join-token create makes them): %w", cfg.Socket(), err)
		}
		if name != "" {
			clusterID = name + " (" + clusterID + ")"
		}
		return printInit(stdout, s, id, clusterID, settings, joins)
	})
	if err != nil && !started { // such as a full disk: nobody knows the cluster yet
		return errors.Join(err, s.remove())
	}
	return err
}

// issueFirst makes the CA of a cluster and the certificate of its first coordinator.
func issueFirst(dir, clusterID, id string, hosts []string) error {
	now := time.Now()
	ca, err := tlsconf.NewCA(clusterID, now)
	if err != nil {
		return err
	}
	key, err := tlsconf.NewKey()
	if err != nil {
		return err
	}
	cert, err := ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: id, Hosts: hosts, Key: key.Public()}, now)
	if err != nil {
		return err
	}
	if err := ca.Save(dir); err != nil {
		return err
	}
	return tlsconf.Save(dir, cert, key, ca.Cert)
}

// joinStrings are those that init prints.
type joinStrings struct{ coordinator, worker, user auth.Secret }

// firstJoinStrings names the cluster, unless name is empty, and makes join strings, once the
// cluster is at the feature level of this build: the leader sets it a moment after it has
// founded the cluster.
func firstJoinStrings(ctx context.Context, c *client.Client, name string) (joins joinStrings, err error) {
	for {
		status, err := c.UpgradeStatus(ctx)
		if err != nil {
			return joins, err
		}
		if status.GetLevel() == status.GetSupported() {
			break
		}
		select {
		case <-time.After(levelPoll):
		case <-ctx.Done():
			return joins, context.Cause(ctx)
		}
	}
	if name != "" {
		if _, err := c.SetClusterName(ctx, name); err != nil {
			return joins, err
		}
	}
	for _, want := range []struct {
		text    *auth.Secret
		purpose auth.Purpose
	}{{&joins.coordinator, auth.JoinCoordinator}, {&joins.worker, auth.JoinWorker}, {&joins.user, auth.JoinUser}} {
		text, _, err := c.CreateJoinToken(ctx, client.JoinTokenOptions{Purpose: want.purpose.String(), TTL: firstTTL, Uses: want.purpose.DefaultUses()})
		if err != nil {
			return joins, err
		}
		*want.text = text
	}
	return joins, nil
}

func printInit(w io.Writer, s *setupFlags, id, clusterID, settings string, joins joinStrings) error {
	state := "runs at " + s.advertise + ", until this command is ended. Restart it with\n  dtaskd --config " + quoteWord(settings)
	if !s.now {
		state = "was created. Start it with\n  dtaskd --config " + quoteWord(settings)
	}
	_, err := fmt.Fprintf(w, `Coordinator %s of the new cluster %s %s

The join strings below are valid for an hour. They are shown this once.

On two more machines, for a cluster of three coordinators:
  sudo dtaskd join %s --advertise HOST:7460 --now

On every worker:
  dtask-worker --join %s

On your own machine, once:
  dtaskctl login %s
`, id, clusterID, state, joins.coordinator.Reveal(), joins.worker.Reveal(), joins.user.Reveal())
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}
