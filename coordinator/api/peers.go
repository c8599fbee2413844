package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// peerSilence is for how long nothing may come from a peer that something is expected
// of before it is asked whether it is still there, and then until it is given up.
const peerSilence = 10 * time.Second

// Peers are connections to other replicas, made when first used and kept. Safe
// for concurrent use.
type Peers struct {
	options []grpc.DialOption

	mu     sync.Mutex // guards what follows
	conns  map[string]*grpc.ClientConn
	closed bool
}

// NewPeers makes an empty set. Options come after the defaults, which have no
// transport security.
func NewPeers(options ...grpc.DialOption) *Peers {
	defaults := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		// A peer that comes back is to be seen within a second.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}),
		// A stream to a peer that is gone without a word must end.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: peerSilence, Timeout: peerSilence}),
	}
	return &Peers{options: append(defaults, options...), conns: make(map[string]*grpc.ClientConn)}
}

// client gives the service at an address.
func (p *Peers) client(address string) (dtaskv1.ClusterServiceClient, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.New("api: connections to peers are closed")
	}
	conn := p.conns[address]
	if conn == nil {
		var err error
		// The address goes to the dialler as it is, so that a name is looked up
		// at each connect.
		if conn, err = grpc.NewClient("passthrough:///"+address, p.options...); err != nil {
			return nil, fmt.Errorf("connecting to %s: %w", address, err)
		}
		p.conns[address] = conn
	}
	return dtaskv1.NewClusterServiceClient(conn), nil
}

// Identify asks the replica at an address who it is. ctx must have a deadline.
// The error is a gRPC status, or that Peers is closed.
func (p *Peers) Identify(ctx context.Context, address string) (*dtaskv1.IdentifyResponse, error) {
	c, err := p.client(address)
	if err != nil {
		return nil, err
	}
	return c.Identify(ctx, &dtaskv1.IdentifyRequest{})
}

// Admit asks the replica at an address, which must be the leader, to let an
// instance run under its server id. Errors as Identify.
func (p *Peers) Admit(ctx context.Context, address string, r *dtaskv1.AdmitRequest) (*dtaskv1.AdmitResponse, error) {
	c, err := p.client(address)
	if err != nil {
		return nil, err
	}
	return c.Admit(ctx, r)
}

// Digests asks the replica at an address for its state digests from an index
// on. Errors as Identify.
func (p *Peers) Digests(ctx context.Context, address string, from uint64) (serverID string, marks []fsm.Mark, err error) {
	c, err := p.client(address)
	if err != nil {
		return "", nil, err
	}
	got, err := c.Digests(ctx, &dtaskv1.DigestsRequest{From: from})
	if err != nil {
		return "", nil, err
	}
	for _, d := range got.GetDigests() {
		marks = append(marks, fsm.Mark{Index: d.GetIndex(), Digest: d.GetValue()})
	}
	return got.GetServerId(), marks, nil
}

// peerHistory is the history of another replica.
type peerHistory struct {
	peers   *Peers
	address string
}

// History gives the replica at an address as a source of history.
func (p *Peers) History(address string) history.Source { return peerHistory{p, address} }

// Fetch implements history.Source.
func (p peerHistory) Fetch(ctx context.Context, after history.Position, to uint64, take func(history.Chunk, bool) error) (complete bool, err error) {
	c, err := p.peers.client(p.address)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.History(ctx, &dtaskv1.HistoryRequest{AfterIndex: after.Index, AfterJob: uint64(after.Job), ToIndex: to})
	if err != nil {
		return false, err
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return false, fmt.Errorf("fetching history from %s: %w", p.address, err)
		}
		if len(resp.GetChunks()) == 0 {
			return resp.GetComplete(), nil
		}
		for _, x := range resp.GetChunks() {
			chunk := history.Chunk{Position: history.Position{Index: x.GetIndex(), Job: fsm.JobID(x.GetJob())}, Number: x.GetNumber(), Total: x.GetTotal(), Data: x.GetData()}
			if err := take(chunk, resp.GetComplete()); err != nil {
				return false, err
			}
		}
	}
}

// retain closes the connections to all other addresses: replicas that are
// members no more.
func (p *Peers) retain(members []Member) {
	wanted := make(map[string]bool, len(members))
	for _, m := range members {
		wanted[m.Address] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, conn := range p.conns {
		if !wanted[address] {
			_ = conn.Close() // nothing was written that could be lost
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
