package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/leader"
	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/notify"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/coordinator/session"
	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/durable"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// FatalError is returned by Run when a store failed, data is damaged, or this
// replica differs from the others. The process must end at once.
type FatalError struct{ Err error }

// Error implements error.
func (e *FatalError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *FatalError) Unwrap() error { return e.Err }

// Bounds of stopping.
const (
	transferLimit = 2 * time.Second
	stopLimit     = 5 * time.Second
	// fatalLimit is how long connections may take to be closed when the process
	// must end at once: a disk that hangs lets nothing else close.
	fatalLimit = 500 * time.Millisecond
)

// replica is a running coordinator.
type replica struct {
	cfg      Config
	log      *slog.Logger
	identity *raftnode.IdentityFile
	id       string // server id; not the one of the command line, if the cluster gave another
	stored   bool   // the folder held raft state when the process started
	// lastStored is the last entry that it stands for.
	lastStored uint64
	folder     *raftnode.Folder
	aside      []string // folders that were set aside as damaged

	saidRefused bool // of the goroutine that forms the cluster
	machine     *fsm.Machine
	history     *history.History
	mux         *transport.Mux
	peers       *membership.Peers
	membership  *membership.Service
	api         *api.Server
	listen      string
	http        string

	node          atomic.Pointer[raftnode.Node]       // nil until Raft runs
	term          atomic.Pointer[sequencer.Sequencer] // nil outside of a term
	totals        *sequencer.Totals
	noticeHooks   notify.Hooks
	told          notify.Totals
	leaderChanges atomic.Uint64
	disputed      atomic.Bool               // the replicas disagree: nothing is assigned
	agreed        atomic.Pointer[agreement] // nil: this replica does not lead, or has no reason to believe its wall clock

	stop   context.CancelCauseFunc
	fatals chan *FatalError // size 1: the first one ends the process
}

// Run is the replica, from the opening of its folder until ctx is done or it
// must not go on. When ctx is done it hands leadership over and returns nil. A folder
// that is damaged when it is opened is set aside, and kept.
func Run(ctx context.Context, cfg Config) error {
	cfg.defaults()
	if err := cfg.Validate(); err != nil {
		return err
	}
	hooks, err := cfg.noticeHooks()
	if err != nil {
		return err
	}
	for {
		err := live(ctx, &cfg, hooks)
		switch damaged, damage := damageAtStart(err); {
		case errors.Is(err, errRenamed):
			cfg.Logger.InfoContext(ctx, "this replica has a new server id: starting under it", "id", cfg.ID)
		case damaged:
			if err := setAside(&cfg, damage); err != nil {
				return &FatalError{err}
			}
		default:
			return fatalAtStart(err)
		}
	}
}

// live is one life of the replica: it ends with the process, or because the folder
// changes.
func live(ctx context.Context, cfg *Config, hooks notify.Hooks) error {
	if err := durable.MakeDir(cfg.DataDir); err != nil {
		return fmt.Errorf("making the data folder: %w", err)
	}
	identity, err := raftnode.OpenIdentity(cfg.DataDir, cfg.ID)
	if damage, damaged := errors.AsType[*logstore.DamageError](err); damaged {
		return &startError{damage}
	}
	if err != nil {
		return fmt.Errorf("opening the data folder: %w", err)
	}
	r := &replica{
		cfg: *cfg, log: cfg.Logger, identity: identity, id: identity.Get().ServerID,
		machine: fsm.NewMachine(fsm.Compact{}), totals: sequencer.NewTotals(), noticeHooks: hooks,
	}
	if err := r.examine(); err != nil {
		return errors.Join(&startError{err}, identity.Close())
	}
	if err := r.openHistory(); err != nil {
		return errors.Join(err, identity.Close())
	}
	inner, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	r.fatals = make(chan *FatalError, 1)
	r.stop = stop
	done := make(chan error, 1)
	go func() { done <- errors.Join(r.run(inner), identity.Close()) }()
	return r.await(ctx, done)
}

// await waits for the end, and hands leadership over when it is asked to end.
// What hangs after that is left behind: the process is about to end.
func (r *replica) await(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case fatal := <-r.fatals:
		return within(r.cfg.TimeScale.Scale(fatalLimit), done, fatal)
	case <-ctx.Done():
		r.handOver(ctx)
		r.stop(errStopped)
	}
	return within(r.cfg.TimeScale.Scale(stopLimit), done, errors.New("stopping took too long; leaving as after a crash, which is safe"))
}

// within waits for the end, and gives up after a limit.
func within(limit time.Duration, done <-chan error, late error) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return late
	}
}

// errStopped is why everything ends when the process is asked to.
var errStopped = errors.New("coordinator: stopped")

func (r *replica) handOver(ctx context.Context) {
	node := r.node.Load()
	if node == nil || !node.Leading() || len(node.Servers()) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.TimeScale.Scale(transferLimit))
	defer cancel()
	if err := node.Transfer(ctx); err != nil {
		r.log.WarnContext(ctx, "leadership could not be handed over", "err", err)
		return
	}
	r.log.InfoContext(ctx, "leadership handed over")
}

// fatal ends the replica at once. It does not wait for anything.
func (r *replica) fatal(err error) {
	r.log.Error("this replica must stop", "err", err)
	fatal := &FatalError{err}
	r.stop(fatal)
	select {
	case r.fatals <- fatal:
	default: // one is enough
	}
}

func (r *replica) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if err := r.open(ctx, group); err != nil {
		r.stop(err)
		return errors.Join(err, ignoreStop(group.Wait()), r.history.Close())
	}
	endHistory := r.runHistory(ctx)
	group.Go(func() error { return r.consensus(ctx) })
	err := group.Wait()
	err = errors.Join(err, endHistory(), r.peers.Close())
	if fatal, ok := errors.AsType[*FatalError](context.Cause(ctx)); ok {
		return fatal
	}
	return ignoreStop(err)
}

func ignoreStop(err error) error {
	if errors.Is(err, errStopped) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// open listens and serves. Before Raft runs, others can already ask who this
// replica is.
func (r *replica) open(ctx context.Context, group *errgroup.Group) error {
	base, err := r.cfg.Seams.Network.Listen(ctx, r.cfg.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	r.listen = base.Addr().String()
	if r.cfg.Advertise == "" {
		r.cfg.Advertise = r.listen
	}
	r.mux = transport.NewMux(base, r.log)
	r.peers = membership.NewPeers(r.cfg.Seams.Network.Dial)
	sessions := session.New(session.Config{
		Current: r.sessionLeader, Machine: r.machine, Logger: r.log,
		HeartbeatInterval: r.cfg.HeartbeatInterval, LivenessTimeout: 3 * r.cfg.HeartbeatInterval, Lease: max(r.cfg.TimeScale.Scale(30*time.Second), 3*r.cfg.HeartbeatInterval),
		Guard: func(ctx context.Context, call func() error) error {
			return r.api.Guard(ctx, dtaskv1.WorkerService_Sessions_FullMethodName, call)
		},
	})
	if r.api, err = api.NewServer(r.apiConfig(sessions)); err != nil {
		return errors.Join(err, base.Close())
	}
	if r.membership, err = membership.New(r.membershipConfig()); err != nil {
		return errors.Join(err, base.Close())
	}
	dtaskv1.RegisterClusterServiceServer(r.api, r.membership)
	dtaskv1.RegisterWorkerServiceServer(r.api, sessions)
	if err := r.serveHTTP(ctx, group); err != nil {
		return errors.Join(err, base.Close())
	}
	group.Go(func() error { return r.mux.Run(ctx) })
	group.Go(func() error { return r.api.Serve(ctx, r.mux.GRPC()) })
	r.cfg.Started(r.listen, r.http)
	return nil
}

// consensus forms or joins the cluster, runs Raft, and leads when elected.
func (r *replica) consensus(ctx context.Context) error {
	prepared, end := r.prepare(ctx)
	defer end()
	founders, err := r.form(ctx)
	if err != nil {
		return err
	}
	node, err := raftnode.Open(raftnode.Config{ //nolint:contextcheck // it lives until Close, which ends when ctx does
		Identity: r.identity, DataDir: r.cfg.DataDir, Inspected: r.folder, Prepared: prepared, Advertise: r.cfg.Advertise, Listener: r.mux,
		FSM: replicated{r.machine, r.history}, Peers: r.cfg.servers(), Founders: founders,
		KnownInstance: r.believedInstance, Heartbeat: r.cfg.RaftHeartbeat, Election: r.cfg.RaftHeartbeat,
		Lease: r.cfg.RaftHeartbeat / 2, SnapshotBytes: r.cfg.SnapshotBytes, TrailingLogs: r.cfg.TrailingLogs, LowSpace: r.cfg.MinFree,
		TimeScale: r.cfg.TimeScale, Dial: r.cfg.Seams.Network.Dial, LogStore: r.cfg.LogStore, WrapStore: r.cfg.Seams.Store, Logger: r.log, Fatal: r.fatal,
	})
	if err != nil {
		return &startError{err}
	}
	r.node.Store(node)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		duty := r.cfg.Seams.Duty
		return leader.RunScaled(ctx, r.cfg.TimeScale, r.cfg.Seams.Raft(node), r.log, duty(term{r}), duty(registrar{r}), duty(clocks{r}), duty(r.watchdog(node)))
	})
	group.Go(func() error { return r.learnCluster(ctx) })
	group.Go(func() error { return r.register(ctx) })
	group.Go(func() error { return r.compare(ctx) })
	group.Go(func() error { return r.summarize(ctx) })
	err = group.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.TimeScale.Scale(stopLimit))
	defer cancel()
	return errors.Join(err, node.Close(closing))
}

func (r *replica) knownInstance(serverID string) (instance string, known bool) {
	r.machine.Read(func(s *fsm.State, _ uint64) { instance, known = s.Instance(serverID) })
	return instance, known
}

// believedInstance is knownInstance for those that connect, also before the log is
// applied.
func (r *replica) believedInstance(serverID string) (instance string, known bool) {
	if instance, known = r.knownInstance(serverID); !known {
		instance, known = r.identity.Get().Instances[serverID]
	}
	return instance, known
}

// sessionLeader gives the present term as the nil interface if there is none.
func (r *replica) sessionLeader() session.Leader {
	if s := r.term.Load(); s != nil {
		return s
	}
	return nil
}
