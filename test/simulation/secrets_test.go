package simulation_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/cluster/identities"
	"github.com/dtask/dtask/worker"
)

// secrets are the identities of a cluster with TLS. Its methods may be called on nil, which
// is a cluster without.
type secrets struct {
	*identities.Set

	c    *cluster
	join client.Secret // of workers
}

func newSecrets(c *cluster) *secrets {
	set, err := identities.New(filepath.Join(c.dir, "tls"))
	if err != nil {
		c.t.Fatal(err)
	}
	return &secrets{Set: set, c: c}
}

// issue issues the certificate of a replica, and returns its directory.
func (s *secrets) issue(id string) string {
	if s == nil {
		return ""
	}
	dir, err := s.Issue(id)
	if err != nil {
		s.c.t.Fatal(err)
	}
	return dir
}

// client adds to a configuration whom the client trusts, and the token of the admin.
func (s *secrets) client(cfg client.Config) client.Config {
	if s == nil {
		return cfg
	}
	return s.Client(cfg)
}

// worker replaces the addresses in a configuration by the join string.
func (s *secrets) worker(cfg worker.Config) worker.Config {
	if s != nil {
		cfg.Join, cfg.JoinString = nil, s.join
	}
	return cfg
}

// asReplica is the option of a connection by a replica.
func (s *secrets) asReplica() grpc.DialOption {
	if s == nil {
		return grpc.WithTransportCredentials(insecure.NewCredentials())
	}
	return grpc.WithTransportCredentials(s.Observer)
}

// open makes the token of the admin valid, through the socket of the leader, and the join
// string of workers.
func (s *secrets) open() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.c.pace.Scale(time.Minute))
	defer cancel()
	err := s.register(ctx)
	for ; err != nil && ctx.Err() == nil; err = s.register(ctx) {
		<-time.After(s.c.pace.Scale(100 * time.Millisecond))
	}
	if err == nil {
		s.join, err = s.WorkerJoin(ctx, s.c.client, nil)
	}
	if err != nil {
		s.c.t.Fatalf("securing the cluster: %v", err)
	}
}

// register tries to make the token valid at each replica, one of which leads.
func (s *secrets) register(ctx context.Context) (err error) {
	for _, r := range s.c.replicas {
		if err = s.registerAt(ctx, r); err == nil {
			return nil
		}
	}
	return err
}

func (s *secrets) registerAt(ctx context.Context, r *replica) error {
	conn, err := grpc.NewClient("passthrough:///"+r.id, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return s.c.caller().Dial(ctx, filepath.Join(r.process.dir, "dtaskd.sock"))
		}))
	if err != nil {
		return fmt.Errorf("connecting to the socket of %s: %w", r.id, err)
	}
	defer func() { _ = conn.Close() }() // its calls have ended
	return s.Register(ctx, conn)
}
