package transport

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/internal/timescale"
	"github.com/dtask/dtask/internal/tlsconf"
)

// maxPool is how many idle connections to a peer raft keeps.
const maxPool = 3

// Log is what the transport reads of this replica's log.
type Log interface {
	// Newest returns the index of the last entry passed to the log, stored or not, and
	// a channel that is closed when there is another.
	Newest() (index uint64, changed <-chan struct{})
	// GetLog reads an entry.
	GetLog(index uint64, log *raft.Log) error
	// WaitStored returns when all entries up to an index are stored, or with the error
	// that prevents it.
	WaitStored(index uint64) error
}

// Config is what New needs. All fields are required unless their comment says
// otherwise.
type Config struct {
	// Advertise is the HOST:PORT under which the others reach this replica.
	Advertise string
	// Admission decides which peers are accepted.
	Admission Admission
	// Dial opens a connection to an address. Optional: that of a Dialer.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// TLS secures the connections that this replica opens. Optional: plaintext. The Mux
	// must have the same (Mux.Secure).
	TLS *tlsconf.Peering
	// ServerAt returns the id of the server that the cluster's configuration has under
	// an address.
	ServerAt func(raft.ServerAddress) (id string, ok bool)
	// Answer answers what peers ask on watch connections. It must not block for longer
	// than AskTimeout.
	Answer func(Question) Answer
	// Check is called for each request of a peer, one after the other, before raft gets
	// it. Raft doesn't get a request for which it returns an error, and the peer gets
	// the error. It may read from the log and must not block otherwise. Optional.
	Check func(command any) error
	// Log is this replica's log.
	Log Log
	// MaxAppend is how many entries one request to a follower has at most.
	MaxAppend int
	// Timeout bounds one request, and the transfer of a snapshot per MiB.
	Timeout time.Duration
	// TimeScale scales the constants of this package. For simulations only.
	TimeScale timescale.Factor
	// Logger receives the messages of this package, RaftLogger those of raft's
	// transport.
	Logger     *slog.Logger
	RaftLogger hclog.Logger
}

// Transport is raft's network. In addition to what raft.Transport requires, it retries
// requests to a peer that returns, delays requests that carry nothing new, and records
// what each peer has stored.
type Transport struct {
	*raft.NetworkTransport

	stream  *streamLayer
	send    func(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error
	install func(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, content io.Reader) error
	// sends reports whether this replica still leads in a term, and another is a member;
	// nil until raft runs.
	sends     atomic.Pointer[func(term uint64, to raft.ServerID) bool]
	log       Log // nil: requests are never delayed
	maxAppend int
	timeScale timescale.Factor
	closed    chan struct{} // closed by Close: ends every wait
	once      sync.Once

	check     func(command any) error // see Config.Check; nil: none
	requests  chan raft.RPC           // of the other replicas, sent by forward, never closed; nil in tests without a network
	forwarder sync.WaitGroup

	mu    sync.Mutex // guards peers
	peers map[raft.ServerID]peerProgress
}

var _ raft.Transport = (*Transport)(nil)

// New returns a transport. It receives no connections until Mux.Attach.
func New(cfg Config) *Transport {
	if cfg.Dial == nil {
		cfg.Dial = NewDialer().Dial
	}
	stream := newStreamLayer(&cfg)
	// With MaxRPCsInFlight 1 there is no pipeline: a pipeline can leave a follower
	// behind forever after its disk stalled.
	network := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: stream, MaxPool: maxPool, MaxRPCsInFlight: 1, Timeout: cfg.Timeout, Logger: cfg.RaftLogger,
	})
	// A snapshot may take Timeout for each MiB, including its restore at the peer.
	network.TimeoutScale = 1 << 20
	t := newTransport(network, cfg.TimeScale)
	t.stream, t.log, t.maxAppend, t.check = stream, cfg.Log, cfg.MaxAppend, cfg.Check
	t.requests = make(chan raft.RPC)
	t.forwarder.Go(t.forward)
	return t
}

func newTransport(network *raft.NetworkTransport, scale timescale.Factor) *Transport {
	return &Transport{
		NetworkTransport: network, timeScale: scale, send: network.AppendEntries, install: network.InstallSnapshot,
		closed: make(chan struct{}), peers: make(map[raft.ServerID]peerProgress),
	}
}

// RaftStarted lets failed requests be retried while sends reports that this replica
// still leads in the request's term and that the peer is a member.
func (t *Transport) RaftStarted(sends func(term uint64, to raft.ServerID) bool) {
	t.sends.Store(&sends)
}

// Close ends all waiting and closes the listener and all connections.
func (t *Transport) Close() error {
	t.once.Do(func() { close(t.closed) })
	return t.NetworkTransport.Close()
}

// Wait returns after Close when every accepted connection is closed by its handler, and
// no kept connection is read. Raft no longer runs.
func (t *Transport) Wait() {
	t.forwarder.Wait()
	t.stream.links.readers.Wait()
	t.stream.inbound.Wait()
}

// Watch opens an idle connection to a server. It breaks when the server's process
// exits. The ctx bounds the dialing only.
func (t *Transport) Watch(ctx context.Context, id, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.AskTimeout())
	defer cancel()
	return t.stream.connect(ctx, watchMagic, id, address)
}

// Ask asks a server a question: on a kept connection, otherwise on a new one.
func (t *Transport) Ask(ctx context.Context, p Peer, q Question) (Answer, error) {
	return t.stream.ask(ctx, p, q)
}

// HasConnectionFrom reports whether a Raft connection that a server opened to this one
// is up.
func (t *Transport) HasConnectionFrom(server string) bool { return t.stream.hasConnectionFrom(server) }

// Refused returns how many peers were refused, by either side, for each reason.
func (t *Transport) Refused() map[string]uint64 { return t.stream.refused.counts() }

// ProvenKey returns what a server proved by TLS on its last connection to or from this
// replica that both accepted: the server id in its certificate, and the SHA-256 of its
// public key.
func (t *Transport) ProvenKey(serverID string) (certified string, key [32]byte, ok bool) {
	p, ok := t.stream.proofOf(serverID)
	return p.certified, p.key, ok
}
