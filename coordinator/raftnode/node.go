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
	"github.com/dtask/dtask/internal/durable"
	"github.com/dtask/dtask/internal/loglimit"
)

const (
	// commitTimeout is the longest that a follower waits to learn of a commit
	// when no further entry tells it.
	commitTimeout = 20 * time.Millisecond
	// drain is how long Close lets what is under way end by itself.
	drain = 500 * time.Millisecond
)

// Node is one replica's running raft. Its methods are safe for concurrent use; see
// Propose for the order of proposals.
type Node struct {
	cfg       Config // with defaults
	log       *slog.Logger
	store     *logstore.Store
	first     uint64 // of the log, before raft started
	last      uint64
	logs      *logstore.ParallelLog
	fsm       *fsmAdapter
	transport *transport.Transport
	raft      *raft.Raft                // set before Open returns
	running   atomic.Pointer[raft.Raft] // the same, for those that raft calls while it starts

	closing   chan struct{} // closed by Close, first
	gone      chan struct{} // closed by Close when raft has ended
	closeOnce sync.Once
	work      sync.WaitGroup // goroutines of the node and calls under way

	proposing sync.RWMutex   // held for reading while proposing, for writing to close proposals
	proposals chan *Proposal // from Propose to collect, in order
	pending   atomic.Int64   // proposals without an answer

	reading    sync.Mutex // guards nextRound
	nextRound  *readRound
	wakeReader chan struct{} // size 1: one signal says all

	watching atomic.Bool   // a watch connection to the leader is up
	stoodIn  atomic.Uint64 // last term in which watchLoop stood for election
	began    beginning     // set before the others can ask

	lowSpace, shortSpace atomic.Bool // of the last look at the disk
	freeSpace            atomic.Uint64
	warned               loglimit.Limiter

	failing sync.Mutex // guards what follows
	failure error      // what was, or would have been, given to Config.Fatal
	opened  bool

	counters nodeCounters
}

type nodeCounters struct {
	proposals, proposedBytes, reads, readRounds, snapshots, snapshotFailures atomic.Uint64
	watchesLost, quickElections, firstElections                              atomic.Uint64
}

// Open starts raft on a data folder and returns when its state is restored from the
// newest snapshot. A damaged folder is a DamageError, and nothing in it is
// changed. The node runs until Close.
func Open(cfg Config) (*Node, error) {
	cfg.setDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, log: cfg.Logger,
		closing: make(chan struct{}), gone: make(chan struct{}),
		proposals: make(chan *Proposal, maxInFlight), wakeReader: make(chan struct{}, 1),
		began: beginning{askers: make(map[string]bool), asked: make(chan struct{}, 1)},
	}
	n.fsm = newFSMAdapter(cfg.FSM, n.fatal)
	n.fsm.writer = n.steadily
	n.look()
	if err := n.openStores(); err != nil {
		return nil, err
	}
	n.logs = logstore.NewParallelLog(n.store)
	if err := n.openRaft(); err != nil {
		n.logs.Close()
		return nil, errors.Join(err, n.store.Close())
	}
	n.begin()
	n.cfg.Listener.Attach(n.transport)
	n.work.Go(n.collect)
	n.work.Go(n.readLoop)
	n.work.Go(n.snapshotLoop)
	n.work.Go(n.beginLoop)
	n.work.Go(n.watchLoop)
	n.work.Go(n.spaceLoop)
	if err := n.arm(); err != nil {
		return nil, errors.Join(err, n.Close(context.Background()))
	}
	return n, nil
}

func (n *Node) openRaft() error {
	log := newHCLog(n.log)
	if reaped, err := reapSnapshots(n.cfg.DataDir); err != nil {
		return err
	} else if reaped > 0 {
		n.log.Info("removed unfinished snapshots", "count", reaped)
	}
	folder := filepath.Join(n.cfg.DataDir, snapshotsDir)
	if err := durable.MakeDir(folder); err != nil { // which makes the name of raft.db durable, too
		return err
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(n.cfg.DataDir, snapshotRetain, log)
	if err != nil {
		return fmt.Errorf("opening the snapshots: %w", err)
	}
	snapshots := durableSnapshots{files, folder, n.isRunning}
	if err := n.snapshotsReadable(snapshots); err != nil {
		return err
	}
	n.transport = transport.New(transport.Config{
		Advertise: n.cfg.Advertise,
		Admission: transport.Admission{Self: n.preface, Peers: n.peerIDs(), KnownInstance: n.cfg.KnownInstance, Admit: n.cfg.Admit},
		Dial:      n.cfg.Dial, ServerAt: n.serverAt, Answer: n.answer, Log: n.logs, MaxAppend: logstore.MaxBatch,
		Timeout: n.cfg.RPCTimeout, TimeScale: n.cfg.TimeScale, Logger: n.log, RaftLogger: log,
	})
	if err := n.newRaft(log, snapshots); err != nil {
		return errors.Join(err, n.transport.Close())
	}
	return nil
}

// snapshotsReadable makes sure that raft does not begin with nothing because it passes
// over snapshots that it cannot read.
func (n *Node) snapshotsReadable(store raft.SnapshotStore) error {
	names, err := snapshotNames(n.cfg.DataDir)
	if err != nil || len(names) == 0 {
		return err
	}
	readable, err := store.List()
	if err != nil {
		return fmt.Errorf("listing the snapshots: %w", err)
	}
	if len(readable) == 0 && n.first != 1 {
		return &logstore.DamageError{
			Path:   filepath.Join(n.cfg.DataDir, snapshotsDir),
			Detail: fmt.Sprintf("none of its %d snapshots can be read, and the log does not begin at the beginning (entries %d to %d)", len(names), n.first, n.last),
		}
	}
	return nil
}

// newRaft starts raft. Raft panics when its log is not what it should be; that, and
// the end of the goroutine by store.unwind, become errors.
func (n *Node) newRaft(log *hclogAdapter, snapshots raft.SnapshotStore) error {
	n.store.RaftStarting()
	err := errors.New("raft's start was cut short")
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				err = &logstore.DamageError{Path: n.cfg.DataDir, Detail: fmt.Sprint(r)}
			}
		}()
		conf := n.raftConfig(log)
		conf.NoSnapshotRestoreOnStart = n.takePrepared(snapshots)
		n.raft, err = raft.NewRaft(conf, n.fsm, n.logs, n.store, snapshots, n.transport)
	}()
	<-done
	if failure := n.Err(); failure != nil {
		return failure
	}
	if err != nil {
		var damage *logstore.DamageError
		if names, listErr := snapshotNames(n.cfg.DataDir); !errors.As(err, &damage) && listErr == nil && len(names) > 0 {
			return &logstore.DamageError{Path: filepath.Join(n.cfg.DataDir, snapshotsDir), Detail: err.Error()}
		}
		return fmt.Errorf("starting raft: %w", err)
	}
	n.transport.RaftStarted(func(term uint64) bool { return n.raft.State() == raft.Leader && n.raft.CurrentTerm() == term })
	n.logs.Share(n.shares)
	n.store.RaftStarted()
	n.running.Store(n.raft)
	return nil
}

// shares reports whether this replica leads and its own vote is not enough.
func (n *Node) shares() bool {
	return n.raft.State() == raft.Leader && slices.ContainsFunc(n.raft.GetConfiguration().Configuration().Servers, func(s raft.Server) bool {
		return s.Suffrage == raft.Voter && s.ID != raft.ServerID(n.cfg.Identity.Get().ServerID)
	})
}

func (n *Node) raftConfig(log *hclogAdapter) *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(n.cfg.Identity.Get().ServerID)
	conf.HeartbeatTimeout = n.cfg.Heartbeat + 1 // see standFirst
	conf.ElectionTimeout = n.cfg.Election + 1
	conf.LeaderLeaseTimeout = n.cfg.Lease
	conf.CommitTimeout = n.cfg.TimeScale.Scale(commitTimeout)
	conf.MaxAppendEntries = logstore.MaxBatch
	conf.BatchApplyCh = true
	conf.ShutdownOnRemove = false
	conf.TrailingLogs = n.cfg.TrailingLogs
	conf.SnapshotThreshold = math.MaxUint64 // snapshotLoop decides
	conf.SnapshotInterval = time.Hour
	conf.NoLegacyTelemetry = true
	conf.Logger = log
	return conf
}

func (n *Node) isRunning() bool { return n.running.Load() != nil }

// preface is how this replica introduces itself to its peers.
func (n *Node) preface() transport.Preface {
	id := n.cfg.Identity.Get()
	return transport.Preface{ClusterID: id.ClusterID, ServerID: id.ServerID, Instance: id.Instance}
}

func (n *Node) peerIDs() (ids []string) {
	for _, s := range n.cfg.Peers {
		ids = append(ids, s.ID)
	}
	return ids
}

// serverAt is the transport's way to the configuration.
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

// fatal records the first failure and ends the process with it. A failure while the
// node is being opened is returned by Open instead.
func (n *Node) fatal(err error) {
	n.failing.Lock()
	first := n.failure == nil
	if first {
		n.failure = err
	}
	report := first && n.opened
	n.failing.Unlock()
	if report {
		n.cfg.Fatal(err)
	}
}

// arm makes fatal report from now on; it returns what failed before.
func (n *Node) arm() error {
	n.failing.Lock()
	defer n.failing.Unlock()
	n.opened = true
	return n.failure
}

// Err returns the failure that Config.Fatal was called with, or nil.
func (n *Node) Err() error {
	n.failing.Lock()
	defer n.failing.Unlock()
	return n.failure
}

func (n *Node) isClosing() bool {
	select {
	case <-n.closing:
		return true
	default:
		return false
	}
}

// Close stops raft and the stores and waits for all that the node started, until
// ctx is done; a store that hangs may keep it from ending. It does not hand
// leadership over: Transfer does. Further calls return at once.
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
	n.proposing.Lock()
	close(n.closing)
	close(n.proposals)
	n.proposing.Unlock()
	n.cfg.Listener.Attach(nil)

	// While raft runs it answers all that was asked of it, at the latest when
	// the leader's lease ends; once it is stopped it forgets what lay in its
	// queues. So it gets the time to answer first.
	idle := make(chan struct{})
	go func() {
		n.work.Wait()
		close(idle)
	}()
	waitFor(idle, drain)
	stopped := n.raft.Shutdown()
	err := n.transport.Close() // breaks the connections, so that no goroutine of raft waits for a peer
	n.transport.CloseStreams()
	err = errors.Join(err, stopped.Error())
	n.transport.Wait()
	close(n.gone)
	if !waitFor(idle, drain) {
		n.log.Warn("raft left a request without an answer")
	}
	n.logs.Close()
	return errors.Join(err, n.store.Close())
}

func waitFor(done <-chan struct{}, atMost time.Duration) bool {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// enter counts a call that Close waits for; it fails when the node is closing.
func (n *Node) enter() bool {
	n.proposing.RLock()
	defer n.proposing.RUnlock()
	if n.isClosing() {
		return false
	}
	n.work.Add(1)
	return true
}

func (n *Node) leave() { n.work.Done() }
