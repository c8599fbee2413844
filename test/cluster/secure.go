package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/tlsconf"
	"github.com/dtask/dtask/test/cluster/identities"
)

// security is the identities of a cluster with TLS, with files for its programs. Its
// methods may be called on nil, which is a cluster without.
type security struct {
	*identities.Set

	dir    string
	opened bool // the token is valid, and the join strings are in their files
}

// SecretsDir is where a cluster with TLS has its secrets, in its directory: the CA in ca,
// and the files of each coordinator under its name.
const SecretsDir = "tls"

// Names in SecretsDir.
const (
	tokenFile = "admin.token"
	joinFile  = "worker.join"
)

// newSecurity makes the identities of a cluster.
func newSecurity(dir string) (*security, error) {
	s := &security{dir: filepath.Join(dir, SecretsDir)}
	var err error
	if s.Set, err = identities.New(s.dir); err != nil {
		return nil, err //nolint:wrapcheck // says what it does
	}
	if err := os.WriteFile(s.path(tokenFile), []byte(s.Token().Reveal()), 0o600); err != nil {
		return nil, fmt.Errorf("writing the token of the admin: %w", err)
	}
	return s, nil
}

func (s *security) path(name string) string { return filepath.Join(s.dir, name) }

// coordinatorFlags are the flags of a coordinator beside those of a cluster without TLS.
func (s *security) coordinatorFlags(id string) ([]string, error) {
	if s == nil {
		return nil, nil
	}
	dir, err := s.Issue(id)
	return []string{"--tls-dir", dir}, err //nolint:wrapcheck // says what it does
}

// join is what workers join with: addresses, or the join string.
func (s *security) join(addresses string) string {
	if s == nil {
		return addresses
	}
	return "@" + s.path(joinFile)
}

// env is the environment of dtaskctl.
func (s *security) env() []string {
	if s == nil {
		return nil
	}
	return []string{"DTASK_CA_FILE=" + s.CAFile(), "DTASK_TOKEN_FILE=" + s.path(tokenFile)}
}

// client adds to a configuration whom the client trusts, and the token of the admin.
func (s *security) client(cfg client.Config) client.Config {
	if s == nil {
		return cfg
	}
	return s.Client(cfg)
}

// asAdmin are the options of a connection by the admin.
func (s *security) asAdmin() []grpc.DialOption {
	if s == nil {
		return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	return s.AsAdmin()
}

// asReplica are the options of a connection by a replica.
func (s *security) asReplica() []grpc.DialOption {
	if s == nil {
		return s.asAdmin()
	}
	return s.AsReplica()
}

// open makes the token of the admin valid, and the join strings of workers. It does so once.
func (s *security) open(ctx context.Context, c *Cluster) error {
	if s == nil || s.opened {
		return nil
	}
	err := Until(ctx, "the admin has a token", startLimit, func(ctx context.Context) error {
		var errs []error
		for _, n := range c.coordinators {
			err := s.register(ctx, n)
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // its calls have ended
	if err := c.writeJoins(ctx, cl); err != nil {
		return err
	}
	s.opened = true
	return nil
}

// register makes the token of the admin valid through the socket of a coordinator, which
// must lead.
func (s *security) register(ctx context.Context, n *Coordinator) error {
	conn, err := grpc.NewClient("unix:"+filepath.Join(n.DataDir, "dtaskd.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connecting to the socket of %s: %w", n.Name, err)
	}
	defer func() { _ = conn.Close() }() // its calls have ended
	if err := s.Register(ctx, conn); err != nil {
		return fmt.Errorf("asking %s: %w", n.Name, err)
	}
	return nil
}

// clone gives another work directory the key and the membership of a worker, if it has
// joined: to the cluster, a process there is the same worker.
func (s *security) clone(from, to string) error {
	if s == nil {
		return nil
	}
	for _, name := range []string{tlsconf.WorkerKeyFile, "cluster.json"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, os.ErrNotExist) {
			return nil // it has not joined yet
		}
		if err == nil {
			err = os.MkdirAll(to, 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), text, 0o600)
		}
		if err != nil {
			return fmt.Errorf("copying the key of a worker: %w", err)
		}
	}
	return nil
}
