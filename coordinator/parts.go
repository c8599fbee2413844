package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/dtask/dtask/coordinator/access"
	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/coordinator/audit"
	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/notify"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/coordinator/session"
	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/columns"
	"github.com/dtask/dtask/internal/telemetry"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// lease is how long a worker keeps the exclusive right to an attempt without contact.
const lease = 30 * time.Second

// replica has the parts of a running coordinator.
type replica struct {
	cfg      Config
	log      *slog.Logger
	started  time.Time
	opened   chan struct{} // closed when node is set
	dir      *directory
	security *security // nil: plaintext
	access   *access.Registry
	audit    *audit.Log // nil with AuditOff

	machine *fsm.Machine
	totals  *sequencer.Totals
	alarms  *membership.Alarms
	history *history.History              // set by openHistory
	node    atomic.Pointer[raftnode.Node] // nil until Raft runs

	aboveLevel atomic.Pointer[fsm.LevelError] // why a snapshot was not restored
	work       work

	mux         *transport.Mux // this and what follows is set by serve
	httpAddress string
	// httpListener is nil without a port for metrics.
	httpListener *telemetry.LimitedListener
	peers        *membership.Peers
	peerCreds    *transport.PeerCredentials // of peers; nil in plaintext
	candidate    *membership.Candidate
	reconciler   *membership.Reconciler
	members      *membership.Service
	sessions     *session.Service
	identities   *access.Service
	clock        *clockMonitor
	trustName    atomic.Pointer[string] // of the CAs, for clients; nil in plaintext
	clusterClock *clusterClock
	notifier     *notifier
	leadership   *leadership
	load         *loadRecorder
	api          *api.Server

	running context.Context //nolint:containedctx // ends when the replica stops; set by serve

	stop   context.CancelCauseFunc
	fatals chan *FatalError // size 1: the first one ends the process
}

// newReplica makes the parts that need no port.
func newReplica(cfg Config, dir *directory, hooks notify.Hooks, stop context.CancelCauseFunc) *replica {
	r := &replica{
		cfg: cfg, log: cfg.Logger, started: time.Now(), opened: make(chan struct{}), dir: dir, machine: fsm.NewMachine(), totals: sequencer.NewTotals(),
		alarms: new(membership.Alarms),
		stop:   stop, fatals: make(chan *FatalError, 1),
	}
	r.clusterClock = newClusterClock(cfg.Wall)
	r.audit = r.newAudit()
	r.machine.SupportLevel(cfg.Seams.MaxLevel)
	r.notifier = &notifier{
		machine: r.machine, hooks: hooks, addresses: cfg.webhookAddresses(), version: cfg.Version,
		wall: cfg.Wall, log: r.log,
	}
	return r
}

// connect makes the parts that need the replica's address, and connects all of them.
func (r *replica) connect() (err error) {
	id := r.dir.serverID
	r.peers = r.newPeers()
	r.access = r.newRegistry()
	r.candidate = &membership.Candidate{
		Dir: r.dir.Dir, Version: r.cfg.Version, Advertise: r.cfg.Advertise, Configured: r.cfg.servers(), AutoRejoin: r.cfg.AutoRejoin || r.dir.mayRejoin, Replace: r.cfg.Replace,
		Members: r.servers, Machine: r.machine, Peers: r.peers, Scale: r.cfg.TimeScale, Logger: r.log,
	}
	r.reconciler = &membership.Reconciler{
		ServerID: id, Machine: r.machine, Peers: r.peers, Scale: r.cfg.TimeScale, Logger: r.log,
		Node: r.membershipNode, Recorder: r.recorder,
	}
	r.clock = &clockMonitor{
		serverID: id, wall: r.cfg.Wall, members: r.servers,
		peers: r.peers, scale: r.cfg.TimeScale, alarms: r.alarms, log: r.log, cluster: r.clusterClock,
	}
	r.load = r.newLoadRecorder()
	r.leadership = &leadership{
		cfg: &r.cfg, newClusterID: r.security.newClusterID, serverID: id, instance: r.dir.Identity().Instance, machine: r.machine, node: &r.node, totals: r.totals,
		reconciler: r.reconciler, clock: r.clock, credentialClock: r.clusterClock.now, notifier: r.notifier, historyBusy: r.history.Busy, checkAudit: r.checkAuditSpace, halt: r.fatal, log: r.log,
	}
	sessions := session.New(session.Config{
		Current: func() session.Leader { return orNil[session.Leader](r.leadership.term.Load()) },
		Machine: r.machine, Logger: r.log, HeartbeatInterval: r.cfg.HeartbeatInterval,
		LivenessTimeout: r.cfg.livenessTimeout(),
		Lease:           max(r.cfg.TimeScale.Scale(lease), r.cfg.livenessTimeout()),
		Authorize:       workerGrant,
		Elected:         r.leadership.elected,
		TermChanged:     r.leadership.termChanged,
		AwaitSuccessor:  r.awaitSuccessor,
		Guard: func(ctx context.Context, call func() error) error {
			return r.api.Guard(ctx, dtaskv1.WorkerService_Sessions_FullMethodName, call)
		},
	})
	r.sessions = sessions
	if r.api, err = api.NewServer(r.apiConfig(sessions)); err != nil {
		return err
	}
	if r.members, err = membership.New(membership.Config{
		ServerID: id, Machine: r.machine, Peers: r.peers, Logger: r.log, Confirm: r.api.Confirm,
		Node: r.membershipNode, Recorder: r.recorder, Self: r.self(), UpgradeAfter: r.cfg.UpgradeAfter,
	}); err != nil {
		return err
	}
	dtaskv1.RegisterClusterServiceServer(r.api, r.members)
	dtaskv1.RegisterWorkerServiceServer(r.api, sessions)
	r.identities = r.newAuthService()
	dtaskv1.RegisterAuthServiceServer(r.api, r.identities)
	return nil
}

// awaitSuccessor returns when the leader of a later term is known, or after a short time.
// A replica that stops has waited already, if there is another one to lead.
func (r *replica) awaitSuccessor(ctx context.Context, term uint64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.running, cancel)() //nolint:contextcheck // either context ends the wait
	r.members.AwaitSuccessor(ctx, term)
}

// orNil returns a pointer as an interface that is nil if the pointer is.
func orNil[I, T any](p *T) (i I) {
	if p != nil {
		i, _ = any(p).(I) // the packages of the interfaces assert that T implements them
	}
	return i
}

func (r *replica) membershipNode() membership.Node { return orNil[membership.Node](r.node.Load()) }

func (r *replica) recorder() membership.Recorder {
	return orNil[membership.Recorder](r.leadership.term.Load())
}

// servers are the members of the cluster; none until Raft runs.
func (r *replica) servers() []raftnode.Server {
	if node := r.node.Load(); node != nil {
		return node.Servers()
	}
	return nil
}

// self describes this replica to others.
func (r *replica) self() func() membership.Self {
	digest := membership.PeersDigest(r.cfg.servers())
	return func() membership.Self {
		id := r.dir.Identity()
		var free, size uint64
		if node := r.node.Load(); node != nil {
			free, size = node.DiskSpace()
		}
		return membership.Self{
			DiskFree: free, DiskSize: size, HistoryImport: r.historyImport(),
			Instance: id.Instance, ClusterID: id.ClusterID, Empty: !r.dir.found.HasState && r.node.Load() == nil,
			Quarantined: len(r.dir.quarantined) > 0, PeersDigest: digest, Version: r.cfg.Version,
			HTTPAddress: r.httpAddress, WallMS: r.cfg.Wall().UnixMilli(), Alarms: r.currentAlarms(), LastIndex: r.dir.found.Last,
			AuditHead:   r.auditHead(),
			Certificate: r.security.ownCertificate(r.cfg.TLSDir),
		}
	}
}

func (r *replica) apiConfig(sessions *session.Service) api.Config {
	return api.Config{
		ServerID: r.dir.serverID, Machine: r.machine, Logger: r.log, Logs: sessions, History: r.history,
		AskBarrier: r.askBarrier, Backups: r.backups(), Disk: r.disk, Debug: r.debugFiles, Load: r.load.read, Wall: r.cfg.Wall,
		ClusterID: r.clusterID, Trust: r.trust, Authenticate: r.access.Authenticate, Abandon: r.access.Abandon, Audit: r.auditor(),
		Leader: func() api.Leader { return orNil[api.Leader](r.leadership.term.Load()) },
		Raft:   func() api.Raft { return orNil[api.Raft](r.node.Load()) },
		Totals: r.totals.Stats,
		Process: func() api.Process {
			p := api.Process{LeaderChanges: r.leadership.terms.Load()}
			if n := r.node.Load(); n != nil {
				p.Syncs = n.Stats().Syncs
			}
			return p
		},
		Enter: func(ctx context.Context, method string) (context.Context, error) {
			if method != dtaskv1.WorkerService_Sessions_FullMethodName {
				return ctx, nil
			}
			return sessions.Enter(ctx)
		},
		Classify:     classify,
		TaskDefaults: r.cfg.taskDefaults(),
		SubmitRate:   r.cfg.SubmitRate,
		SubmitBurst:  r.cfg.SubmitBurst,
		CheckWebhook: r.notifier.addresses.CheckURL,
		Options:      append(r.cfg.scaledOptions(), r.security.serverOptions()...),
	}
}

// clusterID returns the id of the cluster; empty while unknown. The directory knows it
// before the log is applied, the state before the directory.
func (r *replica) clusterID() string {
	id := r.dir.Identity().ClusterID
	if id == "" {
		r.machine.Read(func(st *fsm.State, _ uint64) { id = st.ClusterID() })
	}
	return id
}

// scaledOptions scales the pings of idle connections.
func (c *Config) scaledOptions() []grpc.ServerOption {
	if c.TimeScale <= 1 {
		return nil
	}
	every := c.TimeScale.Scale(10 * time.Second)
	return []grpc.ServerOption{grpc.KeepaliveParams(keepalive.ServerParameters{
		Time: every, Timeout: every, MaxConnectionIdle: c.TimeScale.Scale(5 * time.Minute),
	})}
}

func (r *replica) nodeConfig(founders []raftnode.Server, prepared *raftnode.Preloaded) raftnode.Config {
	return raftnode.Config{
		Identity: r.dir.Dir, DataDir: r.cfg.DataDir, Inspected: r.dir.found, Preloaded: prepared,
		Advertise: r.cfg.Advertise, Listener: r.mux, Dial: r.cfg.Seams.Network.Dial, TLS: r.security.raftPeering(),
		FSM: r.replicated(), Peers: r.cfg.servers(), BootstrapServers: founders, KnownInstance: r.candidate.KnownInstance,
		WasMember: r.wasMember, PeerKeys: r.peerKeys,
		Levels:    r.levels,
		Heartbeat: r.cfg.RaftHeartbeat, Election: r.cfg.RaftHeartbeat,
		LogStore: r.cfg.LogStore, WrapStore: r.cfg.Seams.Store, SnapshotBytes: r.cfg.SnapshotBytes,
		TrailingLogs: r.cfg.TrailingLogs, MinFreeSpace: r.cfg.MinFree,
		TimeScale: r.cfg.TimeScale, Logger: r.log, Fatal: r.fatal,
	}
}

// replicated adapts the state machine to raftnode.
func (r *replica) replicated() replicated {
	return replicated{r.machine, r.history, &r.aboveLevel, &r.work}
}

// levels are the feature levels that this replica announces to its peers.
func (r *replica) levels() transport.Levels {
	level := fsm.Level(0)
	r.machine.Read(func(s *fsm.State, _ uint64) { level = s.Level() })
	return transport.Levels{Cluster: uint32(level), Max: uint32(r.machine.MaxLevel()), Version: r.cfg.Version}
}

// comparer compares this replica's state digests with those of the others.
func (r *replica) comparer() *membership.Comparer {
	return membership.NewComparer(membership.ComparerConfig{
		ServerID: r.dir.serverID, Marks: r.machine.Marks, Members: r.servers, Fetch: r.peers.Digests,
		Logger: r.log, Interval: r.cfg.TimeScale.Scale(2 * time.Second),
		Alarm: func(message string) {
			r.alarms.Set(membership.AlarmDivergence, message != "", message)
			r.leadership.dispute(message != "")
		},
	})
}

// membershipKinds are the kinds of membership's errors in package api.
var membershipKinds = map[membership.Kind]api.Kind{
	membership.NotLeader: api.KindNotLeader, membership.Busy: api.KindBusy, membership.NotFound: api.KindNotFound,
	membership.Conflict: api.KindEnded, membership.Invalid: api.KindInvalid, membership.Refused: api.KindRefused,
}

// classify returns what the errors of the other services mean to a caller; nil for
// unknown ones.
func classify(err error) *api.Error {
	if e := classifyAccess(err); e != nil {
		return e
	}
	if m, ok := errors.AsType[*membership.Error](err); ok {
		return &api.Error{Kind: membershipKinds[m.Kind], Message: m.Message, RetryAfter: m.RetryAfter}
	}
	if foreign, ok := errors.AsType[session.ForeignClusterError](err); ok {
		return &api.Error{Kind: api.KindRefused, Message: strings.TrimPrefix(err.Error(), "session: "), ClusterID: foreign.ClusterID}
	}
	if unallowed, ok := errors.AsType[*session.RefusedError](err); ok {
		return &api.Error{Kind: api.KindDenied, Message: strings.TrimPrefix(unallowed.Error(), "session: ")}
	}
	var kind api.Kind
	switch {
	case errors.Is(err, session.ErrNoHello), errors.Is(err, columns.ErrMalformed):
		kind = api.KindInvalid
	case errors.Is(err, session.ErrLogsUnavailable):
		kind = api.KindNotFound
	case errors.Is(err, session.ErrWorkerUnavailable), errors.Is(err, session.ErrSlowReader):
		// The worker comes back or is marked down soon. Clients continue after what they
		// have.
		kind = api.KindBusy
	default:
		return nil
	}
	return &api.Error{Kind: kind, Message: strings.TrimPrefix(err.Error(), "session: ")}
}
