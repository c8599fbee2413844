package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/chaos/check"
	"github.com/dtask/dtask/test/chaos/history"
	"github.com/dtask/dtask/test/cluster"
)

const (
	// readInterval is about how often the last ticks of a schedule are read. The cluster
	// keeps 20 of them.
	readInterval = 3 * time.Second
	// cronZone differs from UTC by whole minutes: the ticks of the expressions are those of
	// their intervals.
	cronZone = "Asia/Kathmandu"
	// firesWithin is how long a schedule may take to fire after everything was healed. It is
	// a guard: it takes a second or two.
	firesWithin = 2 * time.Minute
)

// A plannedSchedule is one of the workload. Its definition differs in the rule for missed
// ticks only, from one replacement to the next.
type plannedSchedule struct {
	job     *dtaskv1.JobSpec
	name    string
	every   time.Duration
	cron    string // instead of every, with the same ticks, in a time zone and with jitter
	overlap dtaskv1.ScheduleOverlap
	all     bool // all missed ticks run, or the newest
}

// A timekeeper sets schedules, pauses, resumes, replaces and deletes them, and reads what
// became of their ticks.
type timekeeper struct {
	w      *Workload
	c      *client.Client
	random *rand.Rand
	all    []*plannedSchedule
}

func newTimekeeper(w *Workload) *timekeeper {
	return &timekeeper{w: w, c: w.clients[0], random: rand.New(rand.NewPCG(w.cfg.Seed, timekeeperNumber))}
}

// prepare plans the schedules and sets them. It tries again until ctx is done.
func (k *timekeeper) prepare(ctx context.Context) error {
	for _, s := range []struct {
		name    string
		every   time.Duration
		overlap dtaskv1.ScheduleOverlap
		rule    string
		all     bool
		cron    string
	}{
		{"every-skip", time.Second, dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_SKIP, "skip", false, ""},
		{"every-skip-all", 2 * time.Second, dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_SKIP, "skip", true, ""},
		{"every-wait", 2 * time.Second, dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_WAIT, "wait", true, ""},
		{"every-replace", time.Second, dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_REPLACE, "replace", false, ""},
		{"cron-skip", 2 * time.Second, dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_SKIP, "skip", true, "*/2 * * * * *"},
	} {
		x := &plannedSchedule{name: s.name, every: s.every, cron: s.cron, overlap: s.overlap, all: s.all}
		plan := check.Plan{
			Name: x.name, Shape: "schedule", Every: x.every, Tasks: numbered(2),
			Gate: &check.Gate{Key: x.name, Overlap: s.rule},
		}
		plan.Tasks[1].After = []string{plan.Tasks[0].ID}
		job, err := spec.Parse("workload", []byte(k.w.file(k.random, shape{name: "schedule", ticked: true}, check.Plan{Name: x.name, Tasks: plan.Tasks})), spec.Options{})
		if err != nil {
			return fmt.Errorf("building schedule %s: %w", x.name, err)
		}
		x.job = job
		k.w.plan(plan)
		k.all = append(k.all, x)
		if err := k.until(ctx, "setting schedule "+x.name, func(ctx context.Context) error { return k.set(ctx, x) }); err != nil {
			return err
		}
	}
	return nil
}

// until calls a function until it succeeds.
func (k *timekeeper) until(ctx context.Context, what string, do func(context.Context) error) error {
	return cluster.Until(ctx, what, firesWithin, do)
}

// run changes schedules and reads them until the given time. Then it sets all again, and
// returns when each has fired and is paused: no job starts later.
func (k *timekeeper) run(ctx, until context.Context) {
	for cluster.Pause(until, time.Duration(k.random.Int64N(int64(readInterval)/int64(len(k.all))*2))) == nil {
		x := k.all[k.random.IntN(len(k.all))]
		// A change that fails is one of the faults, and the next one follows.
		switch k.random.IntN(16) {
		case 0, 1:
			_ = k.pause(until, x)
			_ = cluster.Pause(until, time.Duration(k.random.Int64N(int64(4*time.Second))))
			_ = k.resume(until, x)
		case 2, 3:
			_ = k.resume(until, x)
		case 4:
			x.all = !x.all
			_ = k.set(until, x)
		case 5:
			_, _ = k.read(until, x)
			_ = k.remove(until, x)
			_ = k.set(until, x)
		}
		for _, x := range k.all {
			_, _ = k.read(until, x)
		}
	}
	for _, x := range k.all {
		if err := k.finish(ctx, x); err != nil && ctx.Err() == nil {
			k.w.broken(err)
			return
		}
	}
}

// finish sets a schedule again, waits until it fires, and pauses it.
func (k *timekeeper) finish(ctx context.Context, x *plannedSchedule) error {
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"deleting schedule " + x.name, func(ctx context.Context) error { return k.remove(ctx, x) }},
		{"setting schedule " + x.name, func(ctx context.Context) error { return k.set(ctx, x) }},
		{"schedule " + x.name + " fires", func(ctx context.Context) error { return k.fired(ctx, x) }},
		{"pausing schedule " + x.name, func(ctx context.Context) error { return k.pause(ctx, x) }},
		{"reading schedule " + x.name, func(ctx context.Context) error { _, err := k.read(ctx, x); return err }},
	} {
		if err := k.until(ctx, step.what, step.do); err != nil {
			return err
		}
	}
	return nil
}

// fired returns nil if a tick of a schedule has run.
func (k *timekeeper) fired(ctx context.Context, x *plannedSchedule) error {
	ticks, err := k.read(ctx, x)
	if err == nil && !slices.ContainsFunc(ticks, func(t history.Tick) bool { return t.Became == history.TickRan }) {
		err = errors.New("no tick of it has run")
	}
	return err
}

// change makes a call that changes a schedule.
func (k *timekeeper) change(kind history.Kind, x *plannedSchedule, do func() error) error {
	_, err := k.w.call(history.Call{Client: timekeeperNumber, Kind: kind, Schedule: x.name}, func(*history.Call) error { return do() })
	return err
}

func (k *timekeeper) set(ctx context.Context, x *plannedSchedule) error {
	d := &dtaskv1.ScheduleDefinition{EveryMs: x.every.Milliseconds(), Overlap: x.overlap, Missed: dtaskv1.ScheduleMissed_SCHEDULE_MISSED_ONE}
	if x.cron != "" {
		d.EveryMs, d.Cron, d.Timezone, d.JitterMs = 0, []string{x.cron}, cronZone, x.every.Milliseconds()/4
	}
	if x.all {
		d.Missed = dtaskv1.ScheduleMissed_SCHEDULE_MISSED_ALL
	}
	return k.change(history.SetSchedule, x, func() error {
		_, err := k.c.SetSchedule(ctx, x.job, d, 0)
		return err //nolint:wrapcheck // recorded in any case
	})
}

func (k *timekeeper) pause(ctx context.Context, x *plannedSchedule) error {
	return k.change(history.PauseSchedule, x, func() error {
		_, _, err := k.c.PauseSchedule(ctx, client.ScheduleName{Name: x.name}, "by the workload")
		return err //nolint:wrapcheck // recorded in any case
	})
}

func (k *timekeeper) resume(ctx context.Context, x *plannedSchedule) error {
	return k.change(history.ResumeSchedule, x, func() error {
		_, _, err := k.c.ResumeSchedule(ctx, client.ScheduleName{Name: x.name})
		return err //nolint:wrapcheck // recorded in any case
	})
}

// remove deletes a schedule. One that does not exist may be one that an earlier call with an
// unknown outcome has deleted.
func (k *timekeeper) remove(ctx context.Context, x *plannedSchedule) error {
	err := k.change(history.DeleteSchedule, x, func() error {
		return k.c.DeleteSchedule(ctx, client.ScheduleName{Name: x.name}, 0) //nolint:wrapcheck // recorded in any case
	})
	if errors.Is(err, client.ErrNotFound) {
		return nil
	}
	return err
}

// read reads what became of the last ticks of a schedule.
func (k *timekeeper) read(ctx context.Context, x *plannedSchedule) ([]history.Tick, error) {
	c, err := k.w.call(history.Call{Client: timekeeperNumber, Kind: history.ReadSchedule, Schedule: x.name}, func(c *history.Call) error {
		got, err := k.c.Schedule(ctx, client.ScheduleName{Name: x.name}, 1, client.ReadOptions{})
		if err != nil {
			return err //nolint:wrapcheck // recorded in any case
		}
		c.Created, c.Wall = got.GetCreatedAt(), time.Now().UnixMilli()
		for _, o := range slices.Backward(got.GetOutcomes()) {
			c.Ticks = append(c.Ticks, history.Tick{At: o.GetTickAt(), Became: decisions[o.GetDecision()], Job: o.GetJob(), Earlier: int(o.GetEarlier())})
		}
		return nil
	})
	return c.Ticks, err
}

var decisions = map[dtaskv1.ScheduleDecision]history.Decision{
	dtaskv1.ScheduleDecision_SCHEDULE_DECISION_UNSPECIFIED: "unspecified", dtaskv1.ScheduleDecision_SCHEDULE_DECISION_RAN: history.TickRan,
	dtaskv1.ScheduleDecision_SCHEDULE_DECISION_SKIPPED_OPEN: history.TickOpen, dtaskv1.ScheduleDecision_SCHEDULE_DECISION_SKIPPED_MISSED: history.TickMissed,
}
