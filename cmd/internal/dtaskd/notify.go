package dtaskd

import (
	"context"
	"errors"

	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/internal/sdnotify"
)

// watchdogReports is how often a coordinator that makes progress reports it in the time
// after which the service manager would restart it.
const watchdogReports = 4

// runNotifying runs a coordinator and reports to the service manager, if there is one:
// that the start is complete when the ports are open, since a service manager that waited
// for a leader would start no second coordinator; and that it is alive while it makes
// progress, so that a hanging one is restarted.
func runNotifying(ctx context.Context, cfg coordinator.Config) (err error) {
	manager, err := sdnotify.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, manager.Close()) }()
	report := func(send func() error) {
		if err := send(); err != nil {
			cfg.Logger.WarnContext(ctx, "service manager not notified", "err", err)
		}
	}
	cfg.Started = func(string, string) { report(manager.Ready) }
	if d := manager.Watchdog(); d > 0 {
		cfg.AliveInterval = d / watchdogReports
		cfg.Alive = func() { report(manager.Alive) }
	}
	reported := make(chan struct{})
	unlessStopping := context.AfterFunc(ctx, func() { defer close(reported); report(manager.Stopping) })
	defer func() {
		if !unlessStopping() {
			<-reported // before the connection is closed
		}
	}()
	return coordinator.Run(ctx, cfg)
}
