package coordinator

import (
	"context"
	"log/slog"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/scheduler"
)

// reading is what the totals were at a moment.
type reading struct {
	at        time.Time
	stats     sequencer.Stats
	wait, run sequencer.Counts
}

func (r *replica) read() reading {
	return reading{at: time.Now(), stats: r.totals.Stats(), wait: r.totals.Wait.Counts(), run: r.totals.Run.Counts()}
}

// summarize logs one line every few seconds while this replica leads and there
// is work.
func (r *replica) summarize(ctx context.Context) error {
	tick := time.NewTicker(r.cfg.Summary)
	defer tick.Stop()
	last := r.read()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		now := r.read()
		if r.term.Load() != nil {
			r.summary(ctx, last, now)
		}
		last = now
	}
}

func (r *replica) summary(ctx context.Context, last, now reading) {
	done := now.stats.Completions - last.stats.Completions
	given := now.stats.Assignments - last.stats.Assignments
	held := r.totals.Held.Load()
	waiting := int64(0)
	for p := scheduler.Low; p <= scheduler.Urgent; p++ {
		waiting += r.totals.Depth[p].Load()
	}
	if done+given == 0 && held+waiting == 0 {
		return
	}
	wait, run := now.wait.Since(&last.wait), now.run.Since(&last.run)
	r.log.LogAttrs(ctx, slog.LevelInfo, "summary",
		slog.Int64("tasks_per_s", int64(float64(done)/now.at.Sub(last.at).Seconds())),
		quantiles("wait", &wait), quantiles("run", &run),
		slog.Int64("workers", r.totals.Workers.Load()), slog.Int64("held", held),
		slog.Group("ready",
			slog.Int64("urgent", r.totals.Depth[scheduler.Urgent].Load()),
			slog.Int64("high", r.totals.Depth[scheduler.High].Load()),
			slog.Int64("normal", r.totals.Depth[scheduler.Normal].Load()),
			slog.Int64("low", r.totals.Depth[scheduler.Low].Load())),
		slog.Uint64("failures", now.stats.Failures-last.stats.Failures),
		slog.Uint64("term", r.node.Load().Term()))
}

func quantiles(name string, c *sequencer.Counts) slog.Attr {
	return slog.Group(name,
		slog.Duration("p50", c.Quantile(500)), slog.Duration("p95", c.Quantile(950)), slog.Duration("p99", c.Quantile(990)))
}
