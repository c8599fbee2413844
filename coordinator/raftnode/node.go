package raftnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/transport"
)

const (
	// commitTimeout is the maximum time until a follower learns of a commit if no
	// further entry carries it.
	commitTimeout = 20 * time.Millisecond
	// rpcTimeout bounds one Raft request, and the transfer of a snapshot per MiB.
	rpcTimeout = 2 * time.Second
)

// Node is one replica's running raft. Its methods are safe for concurrent use; see
// Propose for the order of proposals.
type Node struct {
	*view // set, as are the parts below, before Open returns

	cfg       Config // with defaults
	log       *slog.Logger
	store     *logstore.Store
	logs      *logstore.ParallelLog
	fsm       *fsmAdapter
	transport *transport.Transport
	running   atomic.Pointer[raft.Raft] // nil until raft runs, which calls serverAt and answer before
	found     uint64                    // index of the last entry of the FSM that the log had when it was opened; 0 without one

	proposer      *proposer
	reader        *reader
	failover      *failover
	silence       *silence
	firstElection *firstElection
	snapshots     *snapshotter
	snapshotFiles *snapshotStore
	space         *spaceMonitor

	failure   failure
	closing   <-chan struct{} // closed by Close, first
	cancel    context.CancelFunc
	closeOnce sync.Once
	calls     calls
}

// Open starts raft on a data directory and returns when its state is restored from the
// newest snapshot. A damaged directory is a DamageError, and nothing in it is changed.
// The node runs until Close.
func Open(cfg Config) (*Node, error) {
	cfg.setDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &Node{
		cfg: cfg, log: cfg.Logger, closing: ctx.Done(), cancel: cancel,
		failure: failure{report: cfg.Fatal}, calls: calls{closing: ctx.Done()},
		space: &spaceMonitor{dir: cfg.DataDir, limit: *cfg.MinFreeSpace, interval: cfg.SpaceInterval, measure: cfg.MeasureSpace, log: cfg.Logger},
	}
	n.fsm = newFSMAdapter(cfg.FSM, n.failure.fail, n.limitSnapshotRate)
	n.space.update()
	if err := n.openRaft(); err != nil {
		cancel()
		return nil, err
	}
	n.start(ctx)
	if err := n.failure.arm(); err != nil {
		return nil, errors.Join(err, n.Close(context.Background()))
	}
	return n, nil
}

// openRaft opens the stores and the transport and starts raft on them.
func (n *Node) openRaft() (err error) {
	contents, err := n.openStores()
	if err != nil {
		return err
	}
	n.logs = logstore.NewParallelLog(n.store)
	defer func() {
		if err != nil {
			n.logs.Close()
			err = errors.Join(err, n.store.Close())
		}
	}()
	log := newHCLog(n.log)
	snapshots, err := n.openSnapshots(log, contents)
	if err != nil {
		return err
	}
	n.snapshotFiles = snapshots
	if err := n.checkCommitted(contents); err != nil {
		return err
	}
	if n.found, err = n.lastCommand(); err != nil {
		return err
	}
	n.transport = transport.New(transport.Config{
		Advertise: n.cfg.Advertise,
		Admission: transport.Admission{
			Self: n.preface, Peers: n.cfg.peerIDs(), KnownInstance: n.cfg.KnownInstance, Removed: n.removed, Keys: n.cfg.PeerKeys,
		},
		Dial: n.cfg.Dial, TLS: n.cfg.TLS, ServerAt: n.serverAt, Answer: n.answer, Check: n.checkRequest, Log: n.logs, MaxAppend: logstore.MaxBatch,
		Timeout: n.cfg.TimeScale.Scale(rpcTimeout), TimeScale: n.cfg.TimeScale, Logger: n.log, RaftLogger: log,
	})
	if err := n.startRaft(log, snapshots); err != nil {
		return errors.Join(err, n.transport.Close())
	}
	return nil
}

// startRaft starts raft. Raft panics if its log is not what it should be; that, and the
// end of the goroutine by the store, become errors.
func (n *Node) startRaft(log *hclogAdapter, snapshots *snapshotStore) error {
	n.store.RaftStarting()
	var r *raft.Raft
	err := errors.New("raft stopped while it started")
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				err = &logstore.DamageError{Path: n.cfg.DataDir, Detail: fmt.Sprint(r)}
			}
		}()
		conf := n.raftConfig(log)
		conf.NoSnapshotRestoreOnStart = n.usePreloaded(snapshots)
		r, err = raft.NewRaft(conf, n.fsm, n.logs, n.store, snapshots, n.transport)
	}()
	<-done
	failure := n.Err()
	if failure != nil && r != nil { // raft runs: it has not called the store since the failure
		failure = errors.Join(failure, r.Shutdown().Error())
	}
	if failure != nil {
		return failure
	}
	if err != nil {
		var damage *logstore.DamageError
		if names, listErr := snapshotNames(n.cfg.DataDir); !errors.As(err, &damage) && listErr == nil && len(names) > 0 {
			return &logstore.DamageError{Path: filepath.Join(n.cfg.DataDir, snapshotsDir), Detail: err.Error()}
		}
		return fmt.Errorf("starting raft: %w", err)
	}
	n.view = &view{raft: r, self: n.cfg.Identity.Identity().ServerID}
	n.store.RaftStarted()
	return nil
}

// start starts the node's parts, which end when ctx is done, and accepts peers.
func (n *Node) start(ctx context.Context) {
	v, cfg := n.view, &n.cfg
	n.proposer = &proposer{view: v, timeout: cfg.EnqueueTimeout, err: n.Err, queue: make(chan *Proposal, maxInFlight), gone: make(chan struct{})}
	n.reader = &reader{view: v, timeout: cfg.EnqueueTimeout, applied: n.fsm.applied.Load, err: n.Err, closing: n.closing, wake: make(chan struct{}, 1)}
	n.snapshots = &snapshotter{view: v, log: n.log, store: n.store, files: n.snapshotFiles, bytes: cfg.SnapshotBytes, interval: cfg.SnapshotInterval}
	n.failover = &failover{
		view: v, transport: n.transport, space: n.space, advertise: cfg.Advertise, heartbeat: cfg.Heartbeat, timeScale: cfg.TimeScale, log: n.log,
	}
	n.silence = &silence{failover: n.failover}
	n.firstElection = &firstElection{view: v, transport: n.transport, space: n.space, heartbeat: cfg.Heartbeat, timeScale: cfg.TimeScale, log: n.log}
	n.firstElection.record()

	n.transport.RaftStarted(v.sendsTo)
	n.logs.Share(v.leadsWithOthers)
	n.running.Store(v.raft)
	cfg.Listener.Attach(n.transport)
	for _, run := range []func(){
		n.proposer.run,
		n.reader.run,
		func() { n.snapshots.run(ctx, cfg.TimeScale.Scale(snapshotInterval)) },
		func() { n.firstElection.run(ctx) },
		func() { n.failover.run(ctx) },
		func() { n.silence.run(ctx) },
		func() { n.keepLinks(ctx) },
		func() { n.space.run(ctx, v.Leading, n.yield) },
		func() { n.storeCommitted(ctx, cfg.TimeScale.Scale(storeCommittedInterval)) },
	} {
		n.calls.running.Go(run)
	}
}

func (n *Node) raftConfig(log *hclogAdapter) *raft.Config {
	return &raft.Config{
		ProtocolVersion:    raft.ProtocolVersionMax,
		LocalID:            raft.ServerID(n.cfg.Identity.Identity().ServerID),
		HeartbeatTimeout:   n.cfg.Heartbeat + 1, // see firstElection.stand
		ElectionTimeout:    n.cfg.Election + 1,
		LeaderLeaseTimeout: n.cfg.Heartbeat, // no longer: another one may lead then
		CommitTimeout:      n.cfg.TimeScale.Scale(commitTimeout),
		MaxAppendEntries:   logstore.MaxBatch,
		BatchApplyCh:       true,
		TrailingLogs:       n.cfg.TrailingLogs,
		SnapshotThreshold:  math.MaxUint64, // snapshotter decides
		SnapshotInterval:   time.Hour,
		NoLegacyTelemetry:  true,
		Logger:             log,
	}
}

// preface is how this replica introduces itself to its peers.
func (n *Node) preface() transport.Preface {
	id := n.cfg.Identity.Identity()
	p := transport.Preface{ClusterID: id.ClusterID, ServerID: id.ServerID, Instance: id.Instance}
	if n.cfg.Levels != nil {
		p.Levels = n.cfg.Levels()
	}
	return p
}

func (n *Node) isRunning() bool { return n.running.Load() != nil }

// serverAt returns the id of the server that the configuration has under an address.
func (n *Node) serverAt(address raft.ServerAddress) (string, bool) {
	r := n.running.Load()
	if r == nil {
		return "", false // raft is starting: it dials again
	}
	for _, s := range r.GetConfiguration().Configuration().Servers {
		if s.Address == address {
			return string(s.ID), true
		}
	}
	return "", false
}

// removed reports whether a server was a member and is not in the committed
// configuration. A removal that is not committed may still fail, and its server may be
// elected.
func (n *Node) removed(id string) bool {
	r := n.running.Load()
	if r == nil || n.cfg.WasMember == nil || !n.cfg.WasMember(id) {
		return false
	}
	latest := r.GetConfiguration().Configuration() // before its index, which may grow
	return n.logs.Configured() <= r.CommitIndex() && !slices.ContainsFunc(latest.Servers, func(s raft.Server) bool {
		return string(s.ID) == id
	})
}

// PeerKey returns what a server proved by TLS when it was last accepted; see
// transport.Transport.ProvenKey.
func (n *Node) PeerKey(id string) (certified string, key [32]byte, ok bool) {
	return n.transport.ProvenKey(id)
}

// failure records the first failure of a replica.
type failure struct {
	report func(error) // Config.Fatal

	mu    sync.Mutex // guards what follows
	err   error
	armed bool
}

// fail records the first failure and reports it. A failure before arm is returned by
// arm instead.
func (f *failure) fail(err error) {
	f.mu.Lock()
	first := f.err == nil
	if first {
		f.err = err
	}
	report := first && f.armed
	f.mu.Unlock()
	if report {
		f.report(err)
	}
}

// arm makes fail report from now on; it returns the failure before.
func (f *failure) arm() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = true
	return f.err
}

// Err returns the failure that Config.Fatal was called with, or nil.
func (n *Node) Err() error {
	n.failure.mu.Lock()
	defer n.failure.mu.Unlock()
	return n.failure.err
}

// Close stops raft and the stores and waits for all goroutines of the node, until ctx
// is done; a store that hangs may keep it from returning. It does not transfer
// leadership; Transfer does. Further calls return immediately.
func (n *Node) Close(ctx context.Context) error {
	err := error(nil)
	n.closeOnce.Do(func() {
		result := make(chan error, 1)
		go func() { result <- n.shutdown() }()
		select {
		case err = <-result:
		case <-ctx.Done():
			err = fmt.Errorf("closing raft: %w", context.Cause(ctx))
		}
	})
	return err
}

func (n *Node) shutdown() error {
	n.calls.close()
	n.cancel()
	n.proposer.close()
	n.cfg.Listener.Attach(nil)

	// While raft runs it answers every request, at the latest when the leader's lease
	// ends. Once it is stopped it drops what its queues contain. So it gets time to
	// answer first.
	idle := make(chan struct{})
	go func() {
		n.calls.running.Wait()
		close(idle)
	}()
	drain := 2 * n.cfg.Heartbeat // longer than the lease
	waitFor(idle, drain)
	stopped := n.raft.Shutdown()
	err := n.transport.Close() // breaks the connections, so that no goroutine of raft waits for a peer
	n.transport.CloseStreams()
	err = errors.Join(err, stopped.Error())
	n.transport.Wait()
	close(n.proposer.gone)
	if !waitFor(idle, drain) {
		n.log.Warn("raft did not answer all requests before shutdown")
	}
	n.logs.Close()
	if n.Err() == nil {
		err = errors.Join(err, n.store.StoreCommitted())
	}
	return errors.Join(err, n.store.Close())
}

func waitFor(done <-chan struct{}, timeout time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(timeout):
		return false
	}
}
