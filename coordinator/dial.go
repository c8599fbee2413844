package coordinator

import (
	"context"
	"net"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/coordinator/raftnode"
)

// dialler opens this replica's connections to the others: those of Raft, the watch on
// the leader, and gRPC. It is nil, which means the usual one, unless a test gave
// other addresses, so that each direction between two replicas can be broken apart.
func (r *replica) dialler() func(ctx context.Context, address string) (net.Conn, error) {
	if r.cfg.TestNetwork != nil {
		return r.cfg.TestNetwork.Dial
	}
	if len(r.cfg.TestAddresses) == 0 {
		return nil
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		return raftnode.DialTCP(ctx, r.reroute(address))
	}
}

// reroute gives the address to dial in the place of a member's. A server that came
// back under another id has the address of the former one, and its route.
func (r *replica) reroute(address string) string {
	for _, m := range r.members() {
		if other, ok := r.cfg.TestAddresses[m.ID]; ok && m.Address == address {
			return other
		}
	}
	for _, p := range r.cfg.Peers {
		if other, ok := r.cfg.TestAddresses[p.ID]; ok && p.Address == address {
			return other
		}
	}
	return address
}

// listenOn opens the port that gRPC and Raft share.
func (r *replica) listenOn(ctx context.Context, address string) (net.Listener, error) {
	if r.cfg.TestNetwork != nil {
		return r.cfg.TestNetwork.Listen(ctx, address)
	}
	return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
}

func (r *replica) newPeers() *api.Peers {
	if dial := r.dialler(); dial != nil {
		return api.NewPeers(grpc.WithContextDialer(dial))
	}
	return api.NewPeers()
}
