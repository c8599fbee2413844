package dtaskworker

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/dtask/dtask/internal/buildinfo"
	"github.com/dtask/dtask/internal/loopback"
	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/internal/telemetry"
	"github.com/dtask/dtask/worker"
	"github.com/dtask/dtask/worker/metrics"
)

// listenHTTP listens at the address of --http; the listener is nil without one.
func listenHTTP(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil //nolint:nilnil // no listener is wanted
	}
	if !loopback.Is(address) {
		return nil, &program.UsageError{Err: fmt.Errorf("invalid --http %q: must be a loopback address such as 127.0.0.1:7463, "+
			"because workers serve metrics without TLS", address)}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--http: %w", err)
	}
	return l, nil
}

// serveDuring serves the metrics of w on l, unless it is nil, until run returns: a
// worker that drains is still scraped. Metrics that can't be served don't end the worker.
func serveDuring(ctx context.Context, l net.Listener, w *worker.Worker, log *slog.Logger, run func(context.Context) error) error {
	if l == nil {
		return run(ctx)
	}
	registry := telemetry.NewRegistry(buildinfo.Version())
	registry.MustRegister(metrics.Collector(w.Stats))
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var server sync.WaitGroup
	server.Go(func() {
		h := telemetry.AllowHosts(telemetry.Handler(registry, log), nil)
		if err := telemetry.Serve(serving, telemetry.Limit(l), h, log); err != nil {
			log.ErrorContext(serving, "metrics not served; restart this worker to have them again", "err", err)
		}
	})
	defer server.Wait()
	defer stop()
	return run(ctx)
}
