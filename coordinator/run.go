package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/coordinator/leader"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/notify"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/transport"
)

// FatalError is returned by Run when a store failed, data is damaged, or this replica
// differs from the others. The process must exit immediately.
type FatalError struct{ Err error }

// Error implements error.
func (e *FatalError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *FatalError) Unwrap() error { return e.Err }

// Run runs a replica until ctx is done or it cannot continue. When ctx is done it
// transfers leadership and returns nil. It quarantines a data directory that turns out
// to be damaged or stale before anything was served from it.
func Run(ctx context.Context, cfg Config) error {
	cfg.defaults()
	if err := cfg.Validate(); err != nil {
		return err
	}
	hooks, err := cfg.notificationHooks()
	if err != nil {
		return err
	}
	secured, err := openSecurity(&cfg)
	if err != nil {
		return err
	}
	for {
		err := runOnce(ctx, &cfg, hooks, secured)
		switch unusable := unusableDirectory(err); {
		case errors.Is(err, membership.ErrRenamed):
			cfg.Logger.InfoContext(ctx, "restarting under a new server id", "configured_id", cfg.ID)
		case unusable != nil:
			if err := quarantine(&cfg, unusable); err != nil {
				return &FatalError{err}
			}
		default:
			return asFatal(err)
		}
	}
}

// runOnce runs the replica on one data directory and one server id.
func runOnce(ctx context.Context, cfg *Config, hooks notify.Hooks, secured *security) error {
	dir, err := openDirectory(cfg)
	if err != nil {
		return err
	}
	if err := secured.checkCluster(cfg, dir.Identity().ClusterID); err != nil {
		return errors.Join(err, dir.Close())
	}
	inner, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	r := newReplica(*cfg, dir, hooks, stop)
	r.security = secured
	if err := r.openHistory(); err != nil {
		return errors.Join(err, dir.Close())
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(r.run(inner), dir.Close()) }()
	return r.await(ctx, done)
}

// run starts everything and waits for the end of everything.
func (r *replica) run(ctx context.Context) error {
	endAudit := r.runAudit(ctx)
	defer endAudit()
	group, ctx := errgroup.WithContext(ctx)
	if err := r.serve(ctx, group); err != nil {
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

// openWarning is logged by a replica without TLS, whose callers need no credentials.
const openWarning = "every user of this machine may run commands as the user of the workers; dtaskd init makes a secured cluster, also on loopback"

// serve opens the ports. Before Raft runs, other replicas can already ask this one to
// identify itself.
func (r *replica) serve(ctx context.Context, group *errgroup.Group) error {
	r.running = ctx
	port, err := r.cfg.Seams.Network.Listen(ctx, r.cfg.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	listen := port.Addr().String()
	if r.cfg.Advertise == "" {
		r.cfg.Advertise = listen
	}
	r.mux = transport.NewMux(port, r.log)
	r.mux.Limit(r.connectionLimits())
	if r.security == nil {
		r.log.InfoContext(ctx, openWarning, "listen", listen)
	} else {
		r.mux.Secure(r.security.peering)
		group.Go(func() error { r.security.watcher.Run(ctx); return nil })
	}
	if err = r.connect(); err == nil {
		err = r.serveHTTP(ctx, group)
	}
	if err != nil {
		return errors.Join(err, port.Close())
	}
	group.Go(func() error { return r.mux.Run(ctx) })
	group.Go(func() error { return r.api.Serve(ctx, r.mux.GRPC()) })
	group.Go(func() error { r.access.Run(ctx); return nil })
	group.Go(func() error { r.renew(ctx); return nil })
	group.Go(func() error { r.followTrust(ctx); return nil })
	r.serveSocket(ctx, group)
	if r.cfg.Alive != nil {
		group.Go(func() error { reportAlive(ctx, r.cfg.AliveInterval, r.progress, r.cfg.Alive); return nil })
	}
	r.cfg.Started(listen, r.httpAddress)
	return nil
}

// consensus forms or joins the cluster, runs Raft, and leads when elected.
func (r *replica) consensus(ctx context.Context) error {
	if r.dir.conflict != nil {
		return r.stayOut(ctx, *r.dir.conflict)
	}
	prepared, release := r.prepare(ctx)
	defer release()
	founders, err := r.form(ctx)
	if err != nil {
		return err
	}
	node, err := raftnode.Open(r.nodeConfig(founders, prepared)) //nolint:contextcheck // closed when ctx ends
	if above := r.aboveLevel.Load(); above != nil && err != nil {
		err = above // nothing is damaged
	}
	if err != nil {
		return &startError{err}
	}
	r.node.Store(node)
	close(r.opened)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		duty := r.cfg.Seams.Duty
		return leader.Run(ctx, leader.Config{
			Raft: r.cfg.Seams.Raft(node), Logger: r.log, TimeScale: r.cfg.TimeScale,
			Duties: []leader.Duty{
				duty(r.leadership), duty(r.reconciler), duty(r.clock), duty(auditHeads{r}),
				duty(&membership.Upgrader{Service: r.members, Scale: r.cfg.TimeScale}),
				duty(r.pinner(node)), duty(r.backupDuty()),
				duty(r.leadership.watchdog(node)),
			},
		})
	})
	group.Go(func() error { return fatalUnlessDone(ctx, r.learnCluster(ctx)) })
	group.Go(func() error { return fatalUnlessDone(ctx, r.candidate.Watch(ctx, node)) })
	group.Go(func() error { return fatalUnlessDone(ctx, r.comparer().Run(ctx)) })
	group.Go(func() error { r.renewLinks(ctx, node); return nil })
	group.Go(func() error { return r.clock.watch(ctx) })
	group.Go(func() error { return r.summary().run(ctx) })
	group.Go(func() error { return r.load.run(ctx) })
	group.Go(func() error { return r.clearUnverified(ctx, node) })
	err = group.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx),
		r.cfg.stopTimeout())
	defer cancel()
	closed := node.Close(closing)
	if closed == nil && errors.Is(context.Cause(ctx), errStopped) {
		closed = datadir.MarkStopped(r.cfg.DataDir, node.LastIndex())
	}
	return errors.Join(err, closed)
}

// learnCluster stores the cluster's id, which must be that of the certificate.
func (r *replica) learnCluster(ctx context.Context) error {
	if err := r.candidate.LearnCluster(ctx); err != nil {
		return err
	}
	return r.security.checkCluster(&r.cfg, r.dir.Identity().ClusterID)
}

// prepare reads the state of a data directory while form asks the others whether the
// directory may be used. Nothing is served from that state before. After release the
// directory is not read any more.
func (r *replica) prepare(ctx context.Context) (prepared *raftnode.Preloaded, release func()) {
	if !r.dir.found.HasState {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	prepared = raftnode.Preload(ctx, r.cfg.DataDir, r.replicated())
	return prepared, func() {
		cancel()
		prepared.Wait()
	}
}

// form decides whether this replica restarts, founds a cluster, or joins one. It
// returns the founders if it founds one.
func (r *replica) form(ctx context.Context) (founders []raftnode.Server, err error) {
	if r.dir.found.HasState {
		return nil, r.checkStale(ctx)
	}
	founders, err = r.candidate.Form(ctx, r.dir.quarantined)
	if isRefused(err) && !r.cfg.AutoRejoin {
		err = fmt.Errorf("%w\n%s", err, r.cfg.rejoinAdvice())
	}
	return founders, err
}

func isRefused(err error) bool {
	_, refused := errors.AsType[*transport.RefusedError](err)
	return refused
}

// Limits of stopping.
const (
	transferTimeout = 2 * time.Second
	minStopTimeout  = 5 * time.Second
	// fatalTimeout is how long closing connections may take when the process must exit
	// immediately: on a hanging disk nothing else can be closed.
	fatalTimeout = 500 * time.Millisecond
)

// stopTimeout returns how long an orderly stop may take. A leader whose followers stop, too,
// answers its last requests when it notices that it has no quorum: after two heartbeats.
func (c *Config) stopTimeout() time.Duration {
	return max(c.TimeScale.Scale(minStopTimeout), 3*c.RaftHeartbeat)
}

// errStopped is the cause of an orderly end.
var errStopped = errors.New("coordinator: stopped")

// await waits for the end of the replica, and transfers leadership when ctx is done.
// What hangs then is left behind, because the process is about to exit.
func (r *replica) await(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case fatal := <-r.fatals:
		return within(r.cfg.TimeScale.Scale(fatalTimeout), done, fatal)
	case <-ctx.Done():
		r.transferLeadership(ctx)
		r.stop(errStopped)
	}
	return within(r.cfg.stopTimeout(), done,
		errors.New("stopping timed out; exiting as after a crash, which is safe"))
}

// within waits for the end, and returns late after a timeout.
func within(timeout time.Duration, done <-chan error, late error) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return late
	}
}

func (r *replica) transferLeadership(ctx context.Context) {
	node := r.node.Load()
	if node == nil || !node.Leading() || len(node.Servers()) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx),
		r.cfg.TimeScale.Scale(transferTimeout))
	defer cancel()
	term := node.Term()
	if err := node.Transfer(ctx); err != nil {
		r.log.WarnContext(ctx, "leadership not transferred", "err", err)
		return
	}
	// Workers and clients are redirected to the next leader: this replica must learn of it
	// before it stops.
	r.members.AwaitSuccessor(ctx, term)
	r.sessions.AwaitEnded(ctx)
	r.log.InfoContext(ctx, "leadership transferred")
}

// fatal stops the replica immediately. It never blocks.
func (r *replica) fatal(err error) {
	r.log.Error("stopping replica", "err", err)
	fatal := &FatalError{err}
	r.stop(fatal)
	select {
	case r.fatals <- fatal:
	default: // the first one counts
	}
}

// fatalUnlessDone makes an error fatal that is not just the end of ctx.
func fatalUnlessDone(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &FatalError{err}
}

func ignoreStop(err error) error {
	if errors.Is(err, errStopped) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
