package dtaskd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/internal/buildinfo"
	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/worker"
	"github.com/dtask/dtask/worker/builtin"
)

// devDrain is how long running tasks may continue after the first signal.
const devDrain = 30 * time.Second

// runDev runs a coordinator and a worker in this process. It calls summarize when the
// settings are valid.
func runDev(ctx context.Context, s *settings, cfg coordinator.Config, stdout io.Writer, summarize func()) (err error) {
	if cfg.DataDir == "" {
		dir, err := os.MkdirTemp("", "dtask-dev-")
		if err != nil {
			return fmt.Errorf("creating temporary data directory: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		cfg.DataDir = dir
	}
	if err := cfg.Validate(); err != nil {
		return &program.UsageError{Err: err}
	}
	summarize()
	// The user sees the next commands to type, not the log.
	cfg.Logger = quieter(ctx, cfg.Logger)
	var running atomic.Pointer[worker.Worker]
	ctx, stop := program.UntilSignal(ctx, cfg.Logger, func() {
		if w := running.Load(); w != nil {
			w.Hurry()
		}
	})
	defer stop()

	group, ctx := errgroup.WithContext(ctx)
	listening := make(chan string, 1)
	cfg.Started = func(listen, http string) {
		newWelcome(listen, http, cfg.DataDir).print(stdout)
		listening <- listen
	}
	// The coordinator outlives the worker, so that the worker can release its
	// attempts.
	coordinating, end := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer stop() // the worker does not outlive a failed coordinator
		return coordinator.Run(coordinating, cfg)
	})
	group.Go(func() error {
		defer end()
		select {
		case address := <-listening:
			w, err := newDevWorker(s, cfg, address)
			if err != nil {
				return err
			}
			running.Store(w)
			return runDevWorker(ctx, w, stdout)
		case <-ctx.Done():
			return nil
		}
	})
	return group.Wait()
}

func newDevWorker(s *settings, cfg coordinator.Config, address string) (*worker.Worker, error) {
	w, err := worker.New(worker.Config{
		Join: []string{address}, Name: "dev-worker", Slots: s.slots, DrainTimeout: devDrain,
		WorkDir: filepath.Join(cfg.DataDir, "worker"), Version: buildinfo.Version(),
	}, worker.WithLogger(cfg.Logger))
	if err != nil {
		return nil, &program.UsageError{Err: err}
	}
	builtin.Register(w)
	return w, nil
}

// runDevWorker runs the worker until ctx is done, and then prints what it waits for.
func runDevWorker(ctx context.Context, w *worker.Worker, stdout io.Writer) error {
	ended := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-ctx.Done():
		case <-ended:
		}
		if ctx.Err() != nil {
			printStopping(stdout, w.Stats().Running)
		}
	})
	err := w.Run(ctx)
	close(ended)
	waiting.Wait()
	if err != nil {
		return fmt.Errorf("running the worker of --dev: %w", err)
	}
	return nil
}

// quieter logs errors only, unless the level is debug.
func quieter(ctx context.Context, log *slog.Logger) *slog.Logger {
	if log.Enabled(ctx, slog.LevelDebug) {
		return log
	}
	return slog.New(atLeast{log.Handler(), slog.LevelError})
}

type atLeast struct {
	slog.Handler
	level slog.Level
}

func (h atLeast) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.level && h.Handler.Enabled(ctx, l)
}

func (h atLeast) WithAttrs(a []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(a), h.level}
}

func (h atLeast) WithGroup(n string) slog.Handler { return atLeast{h.Handler.WithGroup(n), h.level} }
