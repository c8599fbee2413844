package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// peerTimeout is how long a connection with a call in progress may be silent before
// it is probed, and how long the probe may take.
const peerTimeout = 10 * time.Second

// redialDelay separates attempts to connect to a peer. It is a fraction of the least
// election timeout by default, which is 500 ms.
const redialDelay = 100 * time.Millisecond

// Peers are connections to other replicas, opened when first used and kept. Safe for
// concurrent use.
type Peers struct {
	dial  func(ctx context.Context, address string) (net.Conn, error)
	creds credentials.TransportCredentials

	mu     sync.Mutex // guards the fields below
	conns  map[string]*grpc.ClientConn
	closed bool
}

// NewPeers makes an empty set whose connections are opened by dial, in plaintext.
func NewPeers(dial func(ctx context.Context, address string) (net.Conn, error)) *Peers {
	return NewSecurePeers(dial, insecure.NewCredentials())
}

// NewSecurePeers is NewPeers with connections that are secured by creds.
func NewSecurePeers(dial func(ctx context.Context, address string) (net.Conn, error), creds credentials.TransportCredentials) *Peers {
	return &Peers{dial: dial, creds: creds, conns: make(map[string]*grpc.ClientConn)}
}

// Conn returns the connection to an address.
func (p *Peers) Conn(address string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.New("membership: connections to peers are closed")
	}
	conn := p.conns[address]
	if conn == nil {
		var err error
		// The dialer gets the address unchanged, so that a host name is resolved at
		// each connect.
		if conn, err = grpc.NewClient("passthrough:///"+address,
			grpc.WithContextDialer(p.dial),
			grpc.WithTransportCredentials(p.creds),
			grpc.WithDisableServiceConfig(),
			// The delay does not grow: a peer that starts must be noticed before its
			// election timeout elapses (see stalenessCheck).
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: redialDelay, Multiplier: 1, Jitter: 0.2, MaxDelay: redialDelay},
				MinConnectTimeout: time.Second,
			}),
			// A stream from a peer that vanished must end.
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: peerTimeout, Timeout: peerTimeout}),
		); err != nil {
			return nil, fmt.Errorf("connecting to %s: %w", address, err)
		}
		p.conns[address] = conn
	}
	return conn, nil
}

// Identify asks the replica at an address to identify itself. ctx must have a
// deadline. The error is a gRPC status, or that Peers is closed.
func (p *Peers) Identify(ctx context.Context, address string) (*dtaskv1.IdentifyResponse, error) {
	return p.identify(ctx, address)
}

func (p *Peers) identify(ctx context.Context, address string, opts ...grpc.CallOption) (*dtaskv1.IdentifyResponse, error) {
	conn, err := p.Conn(address)
	if err != nil {
		return nil, err
	}
	return dtaskv1.NewClusterServiceClient(conn).Identify(ctx, &dtaskv1.IdentifyRequest{}, opts...)
}

// IdentifyAll asks servers to identify themselves, all at once, except for this
// replica. The result has nil for those that were not asked, do not answer in time,
// or are other servers.
func (p *Peers) IdentifyAll(
	ctx context.Context, servers []raftnode.Server, self string, timeout time.Duration, opts ...grpc.CallOption,
) []*dtaskv1.IdentifyResponse {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answers := make([]*dtaskv1.IdentifyResponse, len(servers))
	var asking sync.WaitGroup
	for i, s := range servers {
		if s.ID == self {
			continue
		}
		asking.Go(func() {
			if a, err := p.identify(ctx, s.Address, opts...); err == nil && a.GetServerId() == s.ID {
				answers[i] = a
			}
		})
	}
	asking.Wait()
	return answers
}

// Admit asks the replica at an address, which should be the leader, to let an
// instance run under its server id. Errors as for Identify.
func (p *Peers) Admit(ctx context.Context, address string, r *dtaskv1.AdmitRequest) (*dtaskv1.AdmitResponse, error) {
	conn, err := p.Conn(address)
	if err != nil {
		return nil, err
	}
	return dtaskv1.NewClusterServiceClient(conn).Admit(ctx, r)
}

// Digests asks the replica at an address for its state digests from an index on.
// Errors as for Identify.
func (p *Peers) Digests(ctx context.Context, address string, from uint64) (serverID string, marks []fsm.Mark, err error) {
	conn, err := p.Conn(address)
	if err != nil {
		return "", nil, err
	}
	got, err := dtaskv1.NewClusterServiceClient(conn).Digests(ctx,
		&dtaskv1.DigestsRequest{From: from})
	if err != nil {
		return "", nil, err
	}
	for _, d := range got.GetDigests() {
		marks = append(marks, fsm.Mark{Index: d.GetIndex(), Digest: d.GetValue()})
	}
	return got.GetServerId(), marks, nil
}

// retain closes the connections to all other addresses: those of former members.
func (p *Peers) retain(members []raftnode.Server) {
	wanted := make(map[string]bool, len(members))
	for _, m := range members {
		wanted[m.Address] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, conn := range p.conns {
		if !wanted[address] {
			_ = conn.Close() // there is nothing to flush
			delete(p.conns, address)
		}
	}
}

// Close closes all connections; calls on them end.
func (p *Peers) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	for address, conn := range p.conns {
		errs = append(errs, conn.Close())
		delete(p.conns, address)
	}
	return errors.Join(errs...)
}
