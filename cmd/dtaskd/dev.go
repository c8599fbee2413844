package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/internal/buildinfo"
	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/worker"
	"github.com/dtask/dtask/worker/builtin"
)

// runDev runs a coordinator and a worker in this process.
func runDev(ctx context.Context, s *settings, cfg coordinator.Config, stdout io.Writer) (err error) {
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
	// The user sees the next commands to type, not the log.
	cfg.Logger = quieter(ctx, cfg.Logger)
	ctx, stop := program.UntilSignal(ctx, cfg.Logger)
	defer stop()

	group, ctx := errgroup.WithContext(ctx)
	listening := make(chan string, 1)
	cfg.Started = func(listen, http string) {
		welcome(stdout, listen, http, cfg.DataDir)
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
			return runDevWorker(ctx, s, cfg, address)
		case <-ctx.Done():
			return nil
		}
	})
	return group.Wait()
}

func runDevWorker(ctx context.Context, s *settings, cfg coordinator.Config, address string) error {
	w, err := worker.New(worker.Config{
		Join: []string{address}, Name: "dev-worker", Slots: s.slots,
		WorkDir: filepath.Join(cfg.DataDir, "worker"), Version: buildinfo.Version(),
	}, worker.WithLogger(cfg.Logger))
	if err != nil {
		return &program.UsageError{Err: err}
	}
	builtin.Register(w)
	if err := w.Run(ctx); err != nil {
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

func welcome(out io.Writer, listen, http, dir string) {
	addr := ""
	if listen != "127.0.0.1:7460" {
		addr = " --addr " + listen
	}
	_, _ = fmt.Fprintf(out, `dtask is running: one coordinator and one worker in this process.

  clients, workers  %s
  metrics, health   http://%s/metrics  /healthz  /readyz
  data directory    %s

Try in another terminal:

  dtaskctl%[4]s submit --type prime --payload 999999937 --wait
  dtaskctl%[4]s submit examples/diamond.yaml --wait
  dtaskctl%[4]s status

Press Ctrl-C to stop.
`, listen, http, dir, addr) // there is no other way to report it
}
