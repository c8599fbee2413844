// Package identities makes what a cluster with TLS has in tests beside its processes: a CA,
// certificates of replicas, the token of an admin, and the join string of workers.
//
// The CA and the certificates are made before the cluster starts, as an administrator does
// with dtaskctl tls. The token of the first admin is made before, too, so that clients can
// be configured, and becomes valid through the socket of the leader when the cluster has
// started. Workers join with a join string that is made then.
package identities

import (
	"context"
	"crypto/x509"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Names in the directory of a Set.
const (
	caDir        = "ca"
	observerName = "observer"
)

// Set is what the members of one cluster and their callers are known by.
type Set struct {
	dir   string
	ca    *tlsconf.CA
	token auth.Token
	// Trust are credentials of callers, which trust the CA.
	Trust credentials.TransportCredentials
	// Observer are credentials of a replica that is not a member of the cluster.
	Observer credentials.TransportCredentials
}

// New makes the CA of a cluster and the token of its admin, with files in a new directory.
func New(dir string) (*Set, error) {
	s := &Set{dir: dir, token: auth.NewToken()}
	var err error
	if s.ca, err = tlsconf.NewCA(tlsconf.NewClusterID(), time.Now()); err != nil {
		return nil, fmt.Errorf("securing the cluster: %w", err)
	}
	if err := s.ca.Save(filepath.Join(dir, caDir)); err != nil {
		return nil, fmt.Errorf("securing the cluster: %w", err)
	}
	if s.Trust, err = client.TLS(s.CAFile()); err != nil {
		return nil, fmt.Errorf("securing the cluster: %w", err)
	}
	observer, err := s.Issue(observerName)
	if err != nil {
		return nil, err
	}
	replica, err := tlsconf.LoadReplica(observer)
	if err != nil {
		return nil, fmt.Errorf("securing the cluster: %w", err)
	}
	peering := tlsconf.Peering{Source: func() *tlsconf.Replica { return replica }}
	s.Observer = credentials.NewTLS(peering.GRPCClient())
	return s, nil
}

// CAFile is the path of the CA's certificate.
func (s *Set) CAFile() string { return filepath.Join(s.dir, caDir, tlsconf.CAFile) }

// Token is the token of the admin.
func (s *Set) Token() client.Secret { return s.token.Text() }

// Issue issues the certificate of a replica, and returns its directory.
func (s *Set) Issue(id string) (dir string, err error) {
	dir = filepath.Join(s.dir, id)
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

// Client adds to a configuration whom the client trusts, and the token of the admin.
func (s *Set) Client(cfg client.Config) client.Config {
	cfg.Credentials, cfg.Token = s.Trust, s.Token()
	return cfg
}

// AsAdmin are the options of a connection by the admin.
func (s *Set) AsAdmin() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithTransportCredentials(s.Trust), grpc.WithPerRPCCredentials(bearer(s.token.Header()))}
}

// AsReplica are the options of a connection by a replica.
func (s *Set) AsReplica() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithTransportCredentials(s.Observer)}
}

// Register makes the token of the admin valid, over a connection to the socket of a
// coordinator that leads. It may be repeated.
func (s *Set) Register(ctx context.Context, conn grpc.ClientConnInterface) error {
	hash := s.token.Hash()
	_, err := dtaskv1.NewAuthServiceClient(conn).CreateToken(ctx, &dtaskv1.CreateTokenRequest{
		Name: "tests", Role: auth.Admin.String(), Key: "token of the tests", TokenHash: hash[:],
	})
	return err //nolint:wrapcheck // the caller names the coordinator
}

// WorkerJoin makes a join string of workers that grants them labels. It never expires:
// processes join for as long as the cluster exists.
func (s *Set) WorkerJoin(ctx context.Context, cl *client.Client, labels map[string]string) (client.Secret, error) {
	text, _, err := cl.CreateJoinToken(ctx, client.JoinTokenOptions{
		Purpose: auth.JoinWorker.String(), Namespaces: []string{auth.AllNamespaces}, NamePattern: "*", Labels: labels,
	})
	if err != nil {
		return "", fmt.Errorf("making the join string of workers: %w", err)
	}
	return text, nil
}

// bearer is the authorization header of all calls of a connection.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }
