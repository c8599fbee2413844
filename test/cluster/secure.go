package cluster

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// security is what a cluster with TLS has beside its processes. Its methods may be called
// on nil, which is a cluster without.
//
// The CA and the certificates are made before the cluster starts, as an administrator does
// with dtaskctl tls. The token of the first admin is made before, too, so that clients can
// be configured, and becomes valid through the socket of the leader when the cluster
// starts. Workers join with a join string that is made then.
type security struct {
	dir      string // of all certificates and secrets
	ca       *tlsconf.CA
	token    auth.Token
	trust    credentials.TransportCredentials // of callers: the CA
	observer credentials.TransportCredentials // of a replica that is not a member

	opened bool // the token is valid, and the join string is in its file
}

// Names in the directory of secrets.
const (
	secretsDir   = "tls"
	caDir        = "ca"
	tokenFile    = "admin.token"
	joinFile     = "worker.join"
	observerName = "observer"
)

// newSecurity makes the CA of a cluster and the token of its admin.
func newSecurity(dir string) (*security, error) {
	s := &security{dir: filepath.Join(dir, secretsDir), token: auth.NewToken()}
	var err error
	if s.ca, err = tlsconf.NewCA(tlsconf.NewClusterID(), time.Now()); err != nil {
		return nil, fmt.Errorf("securing the cluster: %w", err)
	}
	if err := s.ca.Save(filepath.Join(s.dir, caDir)); err != nil {
		return nil, fmt.Errorf("securing the cluster: %w", err)
	}
	if err := os.WriteFile(s.path(tokenFile), []byte(s.token.Text().Reveal()), 0o600); err != nil {
		return nil, fmt.Errorf("writing the token of the admin: %w", err)
	}
	if s.trust, err = client.TLS(s.caFile()); err != nil {
		return nil, fmt.Errorf("securing the cluster: %w", err)
	}
	observer, err := s.issue(observerName)
	if err != nil {
		return nil, err
	}
	replica, err := tlsconf.LoadReplica(observer)
	if err != nil {
		return nil, fmt.Errorf("securing the cluster: %w", err)
	}
	peering := tlsconf.Peering{Source: func() *tlsconf.Replica { return replica }}
	s.observer = credentials.NewTLS(peering.GRPCClient())
	return s, nil
}

func (s *security) path(name string) string { return filepath.Join(s.dir, name) }

func (s *security) caFile() string { return filepath.Join(s.dir, caDir, tlsconf.CAFile) }

// issue issues the certificate of a replica, and returns its directory.
func (s *security) issue(id string) (dir string, err error) {
	dir = s.path(id)
	key, err := tlsconf.NewKey()
	var cert *x509.Certificate
	if err == nil {
		cert, err = s.ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: id, Key: key.Public()}, time.Now())
	}
	if err == nil {
		err = tlsconf.Save(dir, cert, key, s.ca.Roots...)
	}
	if err != nil {
		return "", fmt.Errorf("issuing the certificate of %s: %w", id, err)
	}
	return dir, nil
}

// coordinatorFlags are the flags of a coordinator beside those of a cluster without TLS.
func (s *security) coordinatorFlags(id string) ([]string, error) {
	if s == nil {
		return nil, nil
	}
	dir, err := s.issue(id)
	return []string{"--tls-dir", dir}, err
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
	return []string{"DTASK_CA_FILE=" + s.caFile(), "DTASK_TOKEN_FILE=" + s.path(tokenFile)}
}

// client adds to a configuration whom the client trusts, and the token of the admin.
func (s *security) client(cfg client.Config) client.Config {
	if s != nil {
		cfg.Credentials, cfg.Token = s.trust, s.token.Text()
	}
	return cfg
}

// asAdmin are the options of a connection by the admin.
func (s *security) asAdmin() []grpc.DialOption {
	if s == nil {
		return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	return []grpc.DialOption{grpc.WithTransportCredentials(s.trust), grpc.WithPerRPCCredentials(bearer(s.token.Header()))}
}

// asReplica are the options of a connection by a replica.
func (s *security) asReplica() []grpc.DialOption {
	if s == nil {
		return s.asAdmin()
	}
	return []grpc.DialOption{grpc.WithTransportCredentials(s.observer)}
}

// open makes the token of the admin valid, and the join string of workers. It does so once.
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
	// It never expires: processes join for as long as the cluster exists.
	text, _, err := cl.CreateJoinToken(ctx, client.JoinTokenOptions{
		Purpose: auth.JoinWorker.String(), Namespaces: []string{auth.AllNamespaces}, NamePattern: "*",
	})
	if err == nil {
		err = os.WriteFile(s.path(joinFile), []byte(text.Reveal()), 0o600)
	}
	if err != nil {
		return fmt.Errorf("making the join string of workers: %w", err)
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
	hash := s.token.Hash()
	_, err = dtaskv1.NewAuthServiceClient(conn).CreateToken(ctx, &dtaskv1.CreateTokenRequest{
		Name: "tests", Role: auth.Admin.String(), Key: "token of the tests", TokenHash: hash[:],
	})
	if err != nil {
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

// bearer is the authorization header of all calls of a connection.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }
