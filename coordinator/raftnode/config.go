package raftnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/internal/timescale"
	"github.com/dtask/dtask/internal/tlsconf"
)

// Server is one member of the cluster.
type Server struct {
	ID      string // unique forever: the id of a removed server is not reused
	Address string // HOST:PORT that the other servers dial
	Voter   bool   // counts in elections and quorums
}

// Config is what Open needs. Zero durations and sizes mean the defaults; all other
// fields are required unless their comment says otherwise.
type Config struct {
	// Identity is the opened identity of the data directory. The node does not close
	// it, and must be closed before it.
	Identity *datadir.Dir
	// DataDir contains raft.db and snapshots. It must exist.
	DataDir string
	// Inspected is what Inspect found in DataDir; nothing may have changed since.
	// Optional: by default Open inspects the directory.
	Inspected *Inspection
	// Preloaded is the result of Preload with DataDir and FSM. Optional: by default
	// Open reads the newest snapshot itself.
	Preloaded *Preloaded
	// Advertise is the HOST:PORT under which the other servers reach this replica.
	Advertise string
	// Listener accepts the Raft connections of the shared port.
	Listener *transport.Mux
	// FSM is the replicated state machine.
	FSM FSM
	// Peers are the servers that the operator configured. A peer that does not know its
	// cluster yet is accepted only if it is one of them. Optional.
	Peers []Server
	// BootstrapServers, if not empty, is the first configuration of a new cluster. Open
	// writes it before raft starts, and only into an empty store.
	BootstrapServers []Server

	// KnownInstance returns the instance that the replicated state has for a server id.
	// A peer with another instance is refused. Optional; called from many goroutines,
	// must not block.
	KnownInstance func(serverID string) (instance string, known bool)
	// WasMember reports whether the replicated state shows that a server is or was a
	// member. A peer that was one, and is not in the committed configuration, is refused.
	// Optional; called as KnownInstance.
	WasMember func(serverID string) bool
	// PeerKeys returns the SHA-256 of the public keys that the replicated state has for the
	// server id in a certificate. A peer with another key is refused. Optional; called as
	// KnownInstance.
	PeerKeys func(certified string) [][32]byte
	// Levels are the feature levels that this replica announces. Optional; called from
	// many goroutines, must not block.
	Levels func() transport.Levels
	// Dial opens a connection to a peer. Optional: plain TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// TLS secures the connections to peers. Optional: plaintext. Listener has the same.
	TLS *tlsconf.Peering

	// Heartbeat is how long a follower waits for its leader before it stands for
	// election, and how long a leader leads without contact to a quorum; default 500 ms. A
	// shorter time detects a dead leader sooner, but may depose a busy one.
	Heartbeat time.Duration
	// Election bounds one election; at least Heartbeat; default 500 ms.
	Election time.Duration
	// EnqueueTimeout bounds how long Propose waits while raft's queue is full; default
	// 1 s.
	EnqueueTimeout time.Duration
	// StoreHangTimeout is how long one call of the store may take before the process
	// ends; default 1.5 s. Time in which the whole process was stopped does not count.
	StoreHangTimeout time.Duration

	// SnapshotBytes is how many bytes of log since the last snapshot cause the next one,
	// unless the last one is larger: then it is that size. Default 64 MiB.
	SnapshotBytes uint64
	// SnapshotInterval is the minimum time between two snapshots; default 10 s.
	SnapshotInterval time.Duration
	// TrailingLogs is how many entries are kept before a snapshot, so that a follower
	// that was briefly down needs no snapshot; default 1024.
	TrailingLogs uint64

	// MinFreeSpace is how much space must be free on the disk of DataDir; see
	// Node.LowSpace. nil means DefaultSpaceLimit; the zero SpaceLimit means no limit.
	MinFreeSpace *SpaceLimit
	// SpaceInterval is how often free space is measured; default 1 s.
	SpaceInterval time.Duration
	// MeasureSpace measures it. Optional: by default the operating system is asked, on
	// systems where that is supported.
	MeasureSpace SpaceFunc

	// LogStore is where the entries of the log are. A directory with its entries
	// elsewhere is refused. Empty: logstore.Bolt.
	LogStore logstore.Kind
	// WrapStore may add a layer between the store and the disk, such as faults in
	// tests. Optional.
	WrapStore func(logstore.Backend) logstore.Backend
	// TimeScale scales all default durations above, and the constants. For simulations
	// only.
	TimeScale timescale.Factor

	// Logger receives the node's and raft's messages.
	Logger *slog.Logger
	// Fatal is called once, from any goroutine, when a store fails or data is damaged:
	// the process must exit. It must not wait for the node, which may be unable to
	// stop.
	Fatal func(error)
}

func (c *Config) setDefaults() {
	scale := c.TimeScale.Scale
	c.Heartbeat = cmp.Or(c.Heartbeat, scale(500*time.Millisecond))
	c.Election = cmp.Or(c.Election, max(scale(500*time.Millisecond), c.Heartbeat))
	c.EnqueueTimeout = cmp.Or(c.EnqueueTimeout, scale(time.Second))
	c.StoreHangTimeout = cmp.Or(c.StoreHangTimeout, scale(1500*time.Millisecond))
	c.SnapshotBytes = cmp.Or(c.SnapshotBytes, 64<<20)
	c.SnapshotInterval = cmp.Or(c.SnapshotInterval, scale(10*time.Second))
	c.TrailingLogs = cmp.Or(c.TrailingLogs, 1024)
	c.SpaceInterval = cmp.Or(c.SpaceInterval, scale(time.Second))
	if c.MinFreeSpace == nil {
		limit := DefaultSpaceLimit()
		c.MinFreeSpace = &limit
	}
	if c.MeasureSpace == nil {
		c.MeasureSpace = diskSpace
	}
}

func (c *Config) peerIDs() (ids []string) {
	for _, s := range c.Peers {
		ids = append(ids, s.ID)
	}
	return ids
}

// Validate returns all problems of c, joined.
func (c *Config) Validate() error {
	errs := []error{c.LogStore.Validate()}
	need := func(ok bool, problem string) {
		if !ok {
			errs = append(errs, errors.New(problem))
		}
	}
	need(c.Identity != nil, "missing identity")
	need(c.DataDir != "", "missing data directory")
	need(c.Advertise != "", "missing advertised address")
	need(c.Listener != nil, "missing listener")
	need(c.FSM != nil, "missing state machine")
	need(c.Logger != nil, "missing logger")
	need(c.Fatal != nil, "missing fatal function")
	need(c.MinFreeSpace == nil || c.MinFreeSpace.Percent <= 100, "invalid free space limit: must be at most 100 %")
	if len(c.BootstrapServers) > 0 && c.Identity != nil {
		self := c.Identity.Identity().ServerID
		need(slices.ContainsFunc(c.BootstrapServers, func(s Server) bool { return s.ID == self }), "this server is not among the bootstrap servers")
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("raftnode config: %w", err)
	}
	return nil
}
