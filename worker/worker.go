package worker

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/internal/taskbody"
	"github.com/dtask/dtask/internal/tlsconf"
	"github.com/dtask/dtask/worker/gpu"
	"github.com/dtask/dtask/worker/logs"
	"github.com/dtask/dtask/worker/process"
)

const (
	// stopTimeout is how long stopped attempts may take beyond their kill grace
	// before Run returns without them.
	stopTimeout = 10 * time.Second
	// ackTimeout is how long a drained worker waits for its last
	// acknowledgments.
	ackTimeout = 10 * time.Second
	// searchLogInterval is the minimum time between two warnings that no leader
	// was found.
	searchLogInterval = 10 * time.Second
)

// Worker executes attempts. New creates it, Handle registers handlers, and Run
// runs it once.
type Worker struct {
	cfg     Config
	log     *slog.Logger
	dial    dialer
	ownDial bool // dial is not from WithDialer
	conns   *Connections
	// kept was left open by the last session, for the next one; used by sessions only.
	kept        *connection
	handlers    map[string]Handler
	name        string                          // set before the first session; see openDir
	ownName     string                          // without a given name: the one that the directory suggests
	keptName    string                          // without a given name: the one that the directory keeps
	renamed     bool                            // the cluster has refused a name
	member      *membership                     // nil: the worker has not joined by a join string
	trust       atomic.Pointer[tlsconf.Trust]   // of a member, as it is stored
	secured     *tlsconf.OpenConns              // of a member, with coordinators
	leaves      atomic.Bool                     // a session ends because the worker closes its connection
	key         atomic.Pointer[tls.Certificate] // of a member
	latest      atomic.Pointer[membership]      // to be stored
	storing     sync.Mutex                      // held while the membership is stored
	incarnation string                          // distinguishes this process from all others that had this name
	host        string
	resources   map[string]int64
	devices     gpu.Devices // the GPUs among the resources that have an index
	gpus        *gpu.Pool   // gives them to attempts
	types       []string    // of tasks that it handles
	debug       bool        // debug logging is enabled
	ran         atomic.Bool
	liveness    time.Duration // livenessTimeout, and longer in tests that run in real time
	hurry       chan struct{} // closed by Hurry
	hurried     sync.Once

	fence    fence
	lease    lease
	attempts *attemptTable
	dirs     *dirs
	logs     *attemptLogs
	forStats atomic.Pointer[attemptLogs] // logs, for Stats, which may be called before Run
	programs process.Pool                // runs commands, unless owners do
	owners   owners                      // run commands under the users of their jobs' owners
	store    *checkpointStore            // nil: none configured
	secrets  *secretSource               // nil: none configured

	slots    sync.WaitGroup // slot goroutines
	removals sync.WaitGroup // goroutines that remove directories or store the membership
	ended    chan struct{}  // closed when the worker ends: keepLatest waits no longer
}

// New creates a worker. It opens nothing yet. The error joins all problems of
// cfg.
func New(cfg Config, opts ...Option) (*Worker, error) {
	if err := cfg.Defaults(); err != nil {
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := &Worker{cfg: cfg, log: slog.New(slog.DiscardHandler), conns: NewConnections(), handlers: map[string]Handler{}, liveness: livenessTimeout, hurry: make(chan struct{}), ended: make(chan struct{})}
	w.secured = tlsconf.NewOpenConns(func(state *tls.ConnectionState) bool { return w.trust.Load().Trusts(state) })
	for _, opt := range opts {
		opt(w)
	}
	if w.dial == nil {
		w.dial, w.ownDial = dialTCP, true
		if cfg.TLS == nil {
			w.dial = dialPlaintext // until it is a member
			if err := checkPlaintext(cfg.Join); err != nil && cfg.JoinString == "" && !cfg.mayBeMember() {
				return nil, err
			}
		}
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	w.incarnation = hex.EncodeToString(id)
	w.host, _ = os.Hostname() // empty: the worker has no label host
	w.attempts = newAttemptTable(cfg.Slots)
	w.lease.ended = func() {
		w.log.Warn("lease ended; stopping at-most-once attempts and those with limits")
		w.attempts.stopLeased()
	}
	w.attempts.leaseEnded = w.lease.over
	return w, nil
}

// Handle registers the handler of tasks whose type is name: the worker gets
// tasks of this type. It must be called before Run. Like the registration of
// HTTP handlers, it panics if the name is empty or "command", the handler is
// nil, or the name has a handler already.
func (w *Worker) Handle(name string, h func(ctx context.Context, t *Task) (result []byte, err error)) {
	switch {
	case name == "" || name == taskbody.CommandType || h == nil:
		panic("worker: Handle needs a name, which must not be " + taskbody.CommandType + ", and a handler")
	case w.handlers[name] != nil:
		panic("worker: duplicate handler for " + name)
	case w.ran.Load():
		panic("worker: Handle after Run")
	}
	w.handlers[name] = h
}

// taskTypes returns the types of tasks that this worker handles, and why
// commands are not among them, if they aren't.
func (w *Worker) taskTypes() (types []string, noCommands error) {
	types = slices.Sorted(maps.Keys(w.handlers))
	if noCommands = process.Ready(); noCommands == nil {
		types = append(types, taskbody.CommandType)
	}
	return types, noCommands
}

// Run executes attempts until ctx is done, then drains: it accepts no new
// attempts, releases those that have not started, and lets running ones
// continue until the drain timeout or Hurry. It then stops and releases the
// rest, and waits until all outcomes are acknowledged. It returns nil after a
// complete drain, and an error if the work directory cannot be used, attempts
// did not end, or their outcomes were not acknowledged. It returns
// *NameInUseError or *WorkDirInUseError without having received an attempt if
// another process has the given name or directory, *JoinError if it can't join the
// cluster, and *RevokedError if the cluster has revoked its identity. Run can be called
// once.
func (w *Worker) Run(ctx context.Context) (err error) {
	if w.ran.Swap(true) {
		return errors.New("worker: Run called twice")
	}
	var noCommands error
	if w.types, noCommands = w.taskTypes(); len(w.types) == 0 {
		return fmt.Errorf("worker: no handler is registered, and commands can't run: %w", noCommands)
	}
	if noCommands != nil {
		w.log.InfoContext(ctx, "this worker gets no commands, only tasks of its own types", "types", w.types, "reason", noCommands)
	}
	if w.secrets, err = openSecrets(w.cfg.SecretsDir, w.log); err != nil {
		return err
	}
	if w.programs.User, err = runAs(w.cfg.RunAs); err != nil {
		return err
	}
	if w.cfg.RunAs == RunAsOwner {
		if w.owners.users, err = openOwners(w.cfg.RunAsMap); err != nil {
			return err
		}
	}
	w.offer(ctx)
	if err := w.openDir(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.dirs.close()) }()
	if err := w.becomeMember(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // nothing was begun
		}
		return err
	}
	if w.owners.users != nil && w.member == nil {
		return errOwnersUnproven
	}
	if err := w.dirs.admit(w.commandUser()); err != nil {
		return err
	}
	defer w.programs.Close()
	defer w.owners.close()
	if w.secrets != nil {
		if err := w.dirs.makeSecretDir(memoryDir); err != nil {
			return err
		}
	}
	log := w.log
	w.log = log.With("worker", w.name)
	w.logs = newAttemptLogs(w.dirs.logs(), logs.Limits{Bytes: w.cfg.LogBytes, Age: w.cfg.LogAge, Attempts: w.cfg.LogAttempts}, w.fence.clusterID, w.log)
	w.forStats.Store(w.logs)
	defer func() { err = errors.Join(err, w.logs.close()) }()
	defer w.logs.expire(context.WithoutCancel(ctx))()
	if w.cfg.CheckpointStore != "" {
		if w.store, err = openStore(w.cfg.CheckpointStore); err != nil {
			return err
		}
		defer w.store.close()
		w.removals.Go(func() {
			if err := w.store.removeExpired(); err != nil {
				log.WarnContext(ctx, "removing expired checkpoints failed", "err", err)
			}
		})
	}
	// Attempts and sessions outlive ctx: its end only starts the drain.
	base := context.WithoutCancel(ctx)
	w.attempts.base = base
	w.debug = w.log.Enabled(ctx, slog.LevelDebug)
	w.attempts.run = func() { w.slots.Go(w.slot) }
	defer w.attempts.close()
	defer w.lease.close()
	defer w.endBackground()

	w.log.InfoContext(ctx, "worker started", "version", w.cfg.Version, "slots", w.cfg.Slots, "types", w.types,
		"resources", w.resources, "gpus", w.devices.IDs, "labels", w.cfg.Labels, "secrets", w.secrets.announced(), "run_as", w.cfg.RunAs, "incarnation", w.incarnation, "work_dir", w.dirs.root)
	for {
		refused, err := w.runNamed(ctx, base)
		if refused == nil {
			return err
		}
		if err := w.rename(refused); err != nil {
			return err
		}
		w.log = log.With("worker", w.name) // nothing else runs
	}
}

// runNamed runs sessions under the present name until ctx is done, and drains the
// worker. It returns early if the cluster refuses the name, or the worker as a whole.
func (w *Worker) runNamed(ctx, base context.Context) (refused *NameInUseError, err error) {
	sessions, stop := context.WithCancel(base)
	refusals := make(chan error, 1) // size 1: at most one, and nobody may read it
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.sessions(sessions); err != nil {
			refusals <- err
		}
	})
	defer func() {
		stop()
		running.Wait()
	}()
	select {
	case <-ctx.Done():
		return nil, w.drain()
	case err := <-refusals:
		if refused, ok := errors.AsType[*NameInUseError](err); ok {
			return refused, nil
		}
		return nil, w.abandon(err)
	}
}

// sessions opens one session after another until ctx is done. It returns early with a
// *RevokedError if the cluster has revoked the worker's identity, and with a
// *NameInUseError if another live process has this worker's name and this worker was
// never welcomed.
//
// A worker that was welcomed before stays: its commands run, its attempts belong
// to its name, and their outcomes may still be accepted when the other process is
// gone, those of at-most-once attempts within their lease. It begins nothing
// meanwhile, because it has no fresh confirmation.
func (w *Worker) sessions(ctx context.Context) error {
	f := &finder{seeds: w.cfg.Join}
	defer w.releaseKept()
	var (
		complained time.Time
		joined     bool // welcomed once
		dispute    nameDispute
		refusals   revocation
	)
	for ctx.Err() == nil {
		w.mayRotateKey(ctx)
		addr, sent := f.address(), time.Now()
		welcomed, err := w.session(ctx, addr, f.others(addr), f.isLate())
		if ctx.Err() != nil {
			return nil // the session ended with ctx
		}
		joined = joined || welcomed
		holder := errorDetail(err).GetNameHolder()
		if holder != nil && !joined && dispute.refused(holder, sent, time.Now()) {
			return &NameInUseError{Name: w.name, Host: holder.GetHost(), Address: holder.GetAddress()}
		}
		if refusals.noted(welcomed, err, time.Now()) {
			return w.revoked(err)
		}
		if cluster := foreignCluster(err); cluster != "" && !f.isForeign(addr) {
			w.log.ErrorContext(ctx, "coordinator belongs to another cluster; check --join, and if the cluster was recovered, restart this worker",
				"coordinator", addr, "cluster", cluster, "expected", w.fence.clusterID())
		}
		pause := f.after(addr, welcomed, err)
		if w.leaves.Swap(false) && welcomed {
			f.again(addr)
		}
		level := slog.LevelDebug
		if welcomed || time.Since(complained) > searchLogInterval {
			level, complained = slog.LevelWarn, time.Now()
			if holder != nil && joined {
				w.log.ErrorContext(ctx, "another process has taken the name of this worker; stop one of them",
					"host", holder.GetHost(), "address", holder.GetAddress())
			}
		}
		w.log.Log(ctx, level, "no session", "coordinator", addr, "was_open", welcomed, "err", plainError(err), "retry_after", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return nil
}

// drain finishes or releases all attempts.
func (w *Worker) drain() error {
	w.log.Info("draining", "timeout", max(w.cfg.DrainTimeout, 0))
	w.attempts.drain()
	if !w.await(max(w.cfg.DrainTimeout, 0), w.hurry, w.attempts.isIdle) {
		w.log.Info("drain timeout expired; stopping running attempts")
		limit := w.attempts.longestGrace() + stopTimeout
		w.attempts.stopRunning(ErrDraining)
		if !w.await(limit, nil, w.attempts.isIdle) {
			running, _ := w.attempts.counts()
			return fmt.Errorf("%w: %d", errStillRunning, running)
		}
	}
	w.slots.Wait()
	if !w.await(ackTimeout, nil, w.attempts.settled) {
		if _, unacked := w.attempts.counts(); unacked > 0 {
			return fmt.Errorf("%w: %d", errUnacknowledged, unacked)
		}
	}
	w.log.Info("drained")
	return nil
}

// Hurry expires the drain timeout: the drain that ends Run stops and releases
// running attempts immediately. It may be called at any time, from any
// goroutine, and repeatedly.
func (w *Worker) Hurry() {
	w.hurried.Do(func() { close(w.hurry) })
}

// await waits until a condition of the attempt table holds, limit passes or
// short is closed. It reports whether the condition holds.
func (w *Worker) await(limit time.Duration, short <-chan struct{}, holds func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for !holds() {
		select {
		case <-w.attempts.idle:
		case <-short:
			return holds()
		case <-timer.C:
			return holds()
		}
	}
	return true
}

// Stats returns the statistics of this worker. It may be called at any time.
func (w *Worker) Stats() Stats {
	s := w.attempts.snapshot()
	programs, others := w.programs.Stats(), w.owners.stats()
	s.SupervisorsStarted, s.SupervisorsLost = programs.Started+others.Started, programs.Lost+others.Lost
	if l := w.forStats.Load(); l != nil {
		output := l.stats()
		s.OutputBytes, s.OutputDroppedBytes = output.Bytes, output.Dropped
	}
	return s
}
