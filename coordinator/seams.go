package coordinator

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/dtask/dtask/coordinator/access"
	"github.com/dtask/dtask/coordinator/leader"
	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/fsm"
)

// Seams are the places between the parts of a replica where simulations and fault
// switches put something of their own. Released programs set none of them
// (ADR 0029). Each function gets the product's own part and returns what the
// replica uses in its place.
type Seams struct {
	// Network replaces TCP.
	Network Network
	// Socket replaces the Unix socket of local administration: who connects is an
	// administrator.
	Socket func(ctx context.Context, path string) (net.Listener, error)
	// Store stands between the defended log store and the disk; see
	// raftnode.Config.WrapStore.
	Store func(logstore.Backend) logstore.Backend
	// Raft stands between package leader and the node.
	Raft func(leader.Raft) leader.Raft
	// Duty wraps each duty of a leader.
	Duty func(leader.Duty) leader.Duty
	// Log receives the entries of a term; ctx ends with the term.
	Log func(ctx context.Context, log sequencer.Log) sequencer.Log
	// MaxLevel makes the replica one of a build that supports feature levels up to it; 0 =
	// this build's.
	MaxLevel fsm.Level
	// HTTP wraps the handler of the HTTP port.
	HTTP func(next http.Handler, replica Internals) http.Handler
}

// Internals are the parts of a replica that Seams.HTTP may change.
type Internals struct {
	Machine  *fsm.Machine
	Snapshot func(context.Context) error
}

// Network is how a replica reaches others and is reached. Its methods are called
// from many goroutines.
type Network interface {
	// Listen opens a listener on HOST:PORT.
	Listen(ctx context.Context, address string) (net.Listener, error)
	// Dial connects to HOST:PORT. Its error wraps syscall.ECONNREFUSED if nothing
	// listens there.
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// tcp is the Network of released programs.
type tcp struct{ dialer *transport.Dialer }

func newTCP() tcp { return tcp{dialer: transport.NewDialer()} }

// Listen implements Network.
func (tcp) Listen(ctx context.Context, address string) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
}

// Dial implements Network.
func (t tcp) Dial(ctx context.Context, address string) (net.Conn, error) {
	return t.dialer.Dial(ctx, address)
}

// defaults makes every seam usable.
func (s *Seams) defaults() {
	if s.Network == nil {
		s.Network = newTCP()
	}
	if s.Socket == nil {
		s.Socket = access.ListenSocket
	}
	if s.Raft == nil {
		s.Raft = func(r leader.Raft) leader.Raft { return r }
	}
	if s.Duty == nil {
		s.Duty = func(d leader.Duty) leader.Duty { return d }
	}
	if s.Log == nil {
		s.Log = func(_ context.Context, l sequencer.Log) sequencer.Log { return l }
	}
	if s.MaxLevel == 0 {
		s.MaxLevel = fsm.MaxLevel
	}
	if s.HTTP == nil {
		s.HTTP = func(next http.Handler, _ Internals) http.Handler { return next }
	}
}

// internals are what Seams.HTTP gets.
func (r *replica) internals() Internals {
	return Internals{Machine: r.machine, Snapshot: func(ctx context.Context) error {
		node := r.node.Load()
		if node == nil {
			return errors.New("raft is not running")
		}
		return node.Snapshot(ctx)
	}}
}
