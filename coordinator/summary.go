package coordinator

import (
	"context"
	"log/slog"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/scheduler"
)

// summary logs one line per interval while this replica leads and there is work.
type summary struct {
	totals     *sequencer.Totals
	leadership *leadership
	interval   time.Duration
	log        *slog.Logger
}

func (r *replica) summary() summary { return summary{r.totals, r.leadership, r.cfg.Summary, r.log} }

// reading is a copy of the totals.
type reading struct {
	at        time.Time
	stats     sequencer.Stats
	wait, run sequencer.Counts
}

func (s summary) read() reading {
	return reading{
		at: time.Now(), stats: s.totals.Stats(), wait: s.totals.Wait.Counts(),
		run: s.totals.Run.Counts(),
	}
}

func (s summary) run(ctx context.Context) error {
	tick := time.NewTicker(s.interval)
	defer tick.Stop()
	last := s.read()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		now := s.read()
		if term := s.leadership.term.Load(); term != nil {
			s.write(ctx, term.Term(), last, now)
		}
		last = now
	}
}

func (s summary) write(ctx context.Context, term uint64, last, now reading) {
	completed := now.stats.Completions - last.stats.Completions
	assigned := now.stats.Assignments - last.stats.Assignments
	held := s.totals.Held.Load()
	ready := int64(0)
	for p := scheduler.Low; p <= scheduler.Urgent; p++ {
		ready += s.totals.Depth[p].Load()
	}
	if completed+assigned == 0 && held+ready == 0 {
		return
	}
	wait, run := now.wait.Since(&last.wait), now.run.Since(&last.run)
	// The age of the backlog, too: a queue may be short and stuck.
	s.log.LogAttrs(ctx, slog.LevelInfo, "summary",
		slog.Int64("tasks_per_s", int64(float64(completed)/now.at.Sub(last.at).Seconds())),
		quantiles("wait", &wait), quantiles("run", &run),
		slog.Int64("workers", s.totals.Workers.Load()), slog.Int64("held", held),
		slog.Group("ready",
			slog.Int64("urgent", s.totals.Depth[scheduler.Urgent].Load()),
			slog.Int64("high", s.totals.Depth[scheduler.High].Load()),
			slog.Int64("normal", s.totals.Depth[scheduler.Normal].Load()),
			slog.Int64("low", s.totals.Depth[scheduler.Low].Load())),
		slog.Duration("backlog_age", time.Duration(s.totals.OldestWait.Load())),
		slog.Uint64("failures", now.stats.Failures-last.stats.Failures),
		slog.Uint64("term", term))
}

func quantiles(name string, c *sequencer.Counts) slog.Attr {
	return slog.Group(name,
		slog.Duration("p50", c.Quantile(500)), slog.Duration("p95", c.Quantile(950)),
		slog.Duration("p99", c.Quantile(990)))
}
