package worker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// endLimit is how long stopped attempts may take beyond their kill grace
	// before Run gives up on them.
	stopTimeout = 10 * time.Second
	// ackLimit is how long a drained worker waits for its last acknowledgements.
	ackTimeout = 10 * time.Second
	// complainEvery is how often the log says that no leader was found.
	searchLogInterval = 10 * time.Second
)

// Worker executes attempts. It is made by New, given handlers with Handle, and
// run once.
type Worker struct {
	cfg         Config
	log         *slog.Logger
	dial        func(ctx context.Context, addr string) (net.Conn, error)
	conns       *Connections
	handlers    map[string]Handler
	incarnation string // names this process among all that ever had this name
	host        string
	resources   map[string]int64
	debug       bool // debug lines are wanted
	ran         atomic.Bool
	hurry       chan struct{} // closed by Hurry
	hurried     sync.Once

	fence    fence
	lease    lease
	attempts *attemptTable
	dirs     *dirs
	logs     *logStore
	store    *checkpointStore // nil: there is none

	slots    sync.WaitGroup // slot goroutines
	removals sync.WaitGroup // removal of folders
}

// New makes a worker. It returns everything that is wrong with cfg, joined; it
// opens nothing yet.
func New(cfg Config, opts ...Option) (*Worker, error) {
	if err := cfg.Defaults(); err != nil {
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := &Worker{cfg: cfg, log: slog.New(slog.DiscardHandler), dial: dialTCP, conns: NewConnections(), handlers: map[string]Handler{}, hurry: make(chan struct{})}
	for _, opt := range opts {
		opt(w)
	}
	w.log = w.log.With("worker", cfg.Name)
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	w.incarnation = hex.EncodeToString(id)
	w.host, _ = os.Hostname() // for people only
	w.resources = offered(&w.cfg)
	w.attempts = newAttemptTable(cfg.Slots, &w.lease)
	w.lease.ended = func() {
		w.log.Warn("lease ended: no leader has answered; stopping at-most-once attempts")
		w.attempts.stopRunning(ErrLeaseEnded, true)
	}
	return w, nil
}

// Handle registers the handler of tasks whose type is name. It must be called
// before Run. Like the registration of HTTP handlers it panics on a mistake of
// the program: an empty name, a nil handler, a second handler for a name.
func (w *Worker) Handle(name string, h func(ctx context.Context, t *Task) (result []byte, err error)) {
	switch {
	case name == "" || h == nil:
		panic("worker: Handle needs a name and a handler")
	case w.handlers[name] != nil:
		panic("worker: a second handler for " + name)
	case w.ran.Load():
		panic("worker: Handle after Run")
	}
	w.handlers[name] = h
}

// Run executes attempts until ctx is done, then drains: it takes nothing new,
// hands back what has not begun, lets what runs go on for the drain time-out,
// or until Hurry, ends and hands back the rest, and waits until every outcome is acknowledged.
// It can be called once. It returns nil after a complete drain; other errors say
// that the work folder cannot be used, that attempts did not end, or that
// nobody acknowledged their outcomes.
func (w *Worker) Run(ctx context.Context) (err error) {
	if w.ran.Swap(true) {
		return errors.New("a worker runs once")
	}
	if w.dirs, err = openDirs(w.cfg.WorkDir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.dirs.close()) }()
	w.logs = newLogStore(w.dirs, w.cfg.LogBytes)
	if w.cfg.CheckpointStore != "" {
		if w.store, err = openStore(w.cfg.CheckpointStore); err != nil {
			return err
		}
		defer w.store.close()
		w.removals.Go(func() {
			if err := w.store.removeExpired(); err != nil {
				w.log.WarnContext(ctx, "removing old checkpoints", "error", err)
			}
		})
	}
	// Attempts and sessions outlive ctx: it only says when to drain.
	base := context.WithoutCancel(ctx)
	w.attempts.base = base
	w.debug = w.log.Enabled(ctx, slog.LevelDebug)
	w.attempts.run = func() { w.slots.Go(w.slot) }
	defer w.attempts.close()
	defer w.lease.close()

	sessions, stop := context.WithCancel(base)
	var running sync.WaitGroup
	running.Go(func() { w.sessions(sessions) })
	defer func() {
		stop()
		running.Wait()
		w.removals.Wait()
	}()
	w.log.InfoContext(ctx, "worker started", "slots", w.cfg.Slots, "incarnation", w.incarnation, "work_dir", w.dirs.root)
	<-ctx.Done()
	return w.drain()
}

// sessions makes one session after another until ctx is done.
func (w *Worker) sessions(ctx context.Context) {
	f := &finder{seeds: w.cfg.Join}
	var complained time.Time
	for ctx.Err() == nil {
		addr := f.address()
		welcomed, err := w.session(ctx, addr)
		if ctx.Err() != nil {
			return
		}
		pause := f.after(addr, welcomed, err)
		level := slog.LevelDebug
		if welcomed || time.Since(complained) > searchLogInterval {
			level, complained = slog.LevelWarn, time.Now()
		}
		w.log.Log(ctx, level, "no session", "coordinator", addr, "had_one", welcomed, "error", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// drain ends the worker's work in an orderly way.
func (w *Worker) drain() error {
	w.log.Info("draining", "timeout", max(w.cfg.DrainTimeout, 0))
	w.attempts.drain()
	if !w.await(max(w.cfg.DrainTimeout, 0), w.hurry, w.attempts.still) {
		w.log.Info("drain time-out has passed; ending what still runs")
		limit := w.attempts.longestGrace() + stopTimeout
		w.attempts.stopRunning(ErrDraining, false)
		if !w.await(limit, nil, w.attempts.still) {
			running, _ := w.attempts.busy()
			return fmt.Errorf("%w: %d", errStillRunning, running)
		}
	}
	w.slots.Wait()
	if !w.await(ackTimeout, nil, w.attempts.settled) {
		if _, owed := w.attempts.busy(); owed > 0 {
			return fmt.Errorf("%w: %d", errUnacknowledged, owed)
		}
	}
	w.log.Info("drained")
	return nil
}

// Hurry takes the patience out of the drain with which Run ends: what still runs
// is ended and handed back at once, as if the drain time-out had passed. It may
// be called at any time, from any goroutine, more than once.
func (w *Worker) Hurry() {
	w.hurried.Do(func() { close(w.hurry) })
}

// await waits until a condition of the ledger holds, or until it is cut short.
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

// Stats returns the counts of this worker. It may be called at any time.
func (w *Worker) Stats() Stats {
	return w.attempts.snapshot()
}
