package raftnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/internal/timescale"
)

// Server is one member of the cluster.
type Server struct {
	ID      string // unique for ever: a removed id is not used again
	Address string // HOST:PORT that the others dial
	Voter   bool   // counts in elections and quorums
}

// Config is what Open needs. Zero durations and sizes mean the defaults; all else
// is required unless its comment says otherwise.
type Config struct {
	// Identity is the opened identity of the data folder. The node neither
	// closes it nor outlives it.
	Identity *datadir.Dir
	// DataDir holds raft.db and snapshots; it must exist.
	DataDir string
	// Inspected is what Inspect found in DataDir, which nobody has changed since.
	// Optional: without it Open inspects the folder.
	Inspected *Folder
	// Prepared is what Prepare made of DataDir and FSM. Optional: without it Open reads
	// the newest snapshot itself.
	Prepared *Prepared
	// Advertise is the HOST:PORT under which the others reach this replica.
	Advertise string
	// Listener brings the Raft connections of the shared port.
	Listener *transport.Mux
	// FSM is the replicated state machine.
	FSM FSM
	// Peers are the servers that the operator named. A side that does not know
	// its cluster yet is believed only when it is one of them. Optional.
	Peers []Server
	// Founders, if not empty, is the first configuration of a new cluster; it
	// is written before raft starts, and only into an empty store.
	Founders []Server

	// KnownInstance returns the instance that the replicated state has for a
	// server id. A peer that shows another is refused. Optional. It is called
	// from many goroutines and must not block.
	KnownInstance func(serverID string) (instance string, known bool)
	// Admit may refuse a peer for a reason of its own. Optional; called from
	// many goroutines, must not block.
	Admit func(peer transport.Preface) error
	// Dial opens a connection to a peer. Optional: plain TCP. With TLS, the
	// connection that it returns has completed its handshake.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// Heartbeat is how long a follower waits for its leader before it stands
	// for election; default 500 ms. Shorter finds a dead leader sooner, and
	// a busy one dead.
	Heartbeat time.Duration
	// Election bounds one election; at least Heartbeat; default 500 ms.
	Election time.Duration
	// Lease is how long a leader leads without hearing from a quorum; at most
	// Heartbeat; default 250 ms.
	Lease time.Duration
	// RPCTimeout bounds one Raft request, and a snapshot's transfer per MiB;
	// default 2 s.
	RPCTimeout time.Duration
	// EnqueueTimeout bounds how long Propose waits for room; default 1 s.
	EnqueueTimeout time.Duration
	// StoreHang is how long one call of the store may take before the process
	// ends; default 1.5 s. Time in which the whole process was stopped does
	// not count.
	StoreHang time.Duration

	// SnapshotBytes of log since the last snapshot cause the next; default 64 MiB.
	SnapshotBytes uint64
	// SnapshotInterval is the least time between two snapshots; default 10 s.
	SnapshotInterval time.Duration
	// TrailingLogs is how many entries stay behind a snapshot, so that a
	// follower that was away shortly needs no snapshot; default 1024.
	TrailingLogs uint64

	// LowSpace is how much room the disk of DataDir must have; see Node.LowSpace.
	// nil: DefaultSpaceLimit. Zero numbers ask for none.
	LowSpace *SpaceLimit
	// SpaceInterval is how often the room is measured; default 1 s.
	SpaceInterval time.Duration
	// Space measures it. Optional: what the operating system says, where it
	// is known how to ask it.
	Space SpaceFunc

	// LogStore is where the entries of the log are. A folder that has them elsewhere is
	// not opened. Empty: logstore.Bolt.
	LogStore logstore.Kind

	// WrapStore may put something between the defended store and what is on the disk:
	// faults, in tests. Optional.
	WrapStore func(logstore.Backend) logstore.Backend

	// TimeScale scales all times above that are defaults, and those that are constants.
	// For simulations only.
	TimeScale timescale.Factor

	// Logger receives the node's and raft's messages.
	Logger *slog.Logger
	// Fatal is called once, from any goroutine, when a store failed or data is
	// damaged: the process must end. It must not wait for the node, which may
	// be unable to stop.
	Fatal func(error)
}

func (c *Config) setDefaults() {
	setDefault(&c.Heartbeat, c.TimeScale.Scale(500*time.Millisecond))
	setDefault(&c.Election, max(c.TimeScale.Scale(500*time.Millisecond), c.Heartbeat))
	setDefault(&c.Lease, min(c.TimeScale.Scale(250*time.Millisecond), c.Heartbeat))
	setDefault(&c.RPCTimeout, c.TimeScale.Scale(2*time.Second))
	setDefault(&c.EnqueueTimeout, c.TimeScale.Scale(time.Second))
	setDefault(&c.StoreHang, c.TimeScale.Scale(1500*time.Millisecond))
	setDefault(&c.SnapshotBytes, 64<<20)
	setDefault(&c.SnapshotInterval, c.TimeScale.Scale(10*time.Second))
	setDefault(&c.TrailingLogs, 1024)
	setDefault(&c.SpaceInterval, c.TimeScale.Scale(time.Second))
	if c.LowSpace == nil {
		limit := DefaultSpaceLimit()
		c.LowSpace = &limit
	}
	if c.Space == nil {
		c.Space = diskSpace
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c *Config) peerIDs() (ids []string) {
	for _, s := range c.Peers {
		ids = append(ids, s.ID)
	}
	return ids
}

// Validate returns all that is wrong with c, joined.
func (c *Config) Validate() error {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New(what))
		}
	}
	errs = append(errs, c.LogStore.Validate())
	need(c.Identity != nil, "identity is missing")
	need(c.DataDir != "", "data folder is missing")
	need(c.Advertise != "", "advertised address is missing")
	need(c.Listener != nil, "listener is missing")
	need(c.FSM != nil, "state machine is missing")
	need(c.Logger != nil, "logger is missing")
	need(c.Fatal != nil, "fatal function is missing")
	need(c.LowSpace == nil || c.LowSpace.Percent <= 100, "the least room on the disk is above 100 %")
	seen := make(map[string]bool)
	for _, s := range c.Founders {
		need(s.ID != "" && s.Address != "", "a founder needs id and address")
		need(!seen[s.ID], "founder "+s.ID+" is named twice")
		need(!seen[s.Address], "founders share the address "+s.Address)
		seen[s.ID], seen[s.Address] = true, true
	}
	if len(c.Founders) > 0 && c.Identity != nil {
		need(seen[c.Identity.Identity().ServerID], "this server is not among the founders")
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("raftnode config: %w", err)
	}
	return nil
}
