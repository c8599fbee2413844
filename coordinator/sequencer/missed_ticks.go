package sequencer

import (
	"math"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/calendar"
)

const (
	// maxMissedRuns is how many missed ticks of a schedule run.
	maxMissedRuns = 100
	// maxCounted is how many missed ticks are counted.
	maxCounted = 1000
	// maxSearches is how many schedules with missed ticks one batch decides: each takes up to
	// some milliseconds, and after an outage all of them have missed some.
	maxSearches = 8
)

// searches counts the searches for missed ticks in a batch.
type searches struct {
	batch uint64
	n     int
}

// areSpent reports whether the batch searches for no further missed ticks.
func (c *searches) areSpent(b *batch) bool { return c.batch == b.number && c.n >= maxSearches }

func (c *searches) add(b *batch, n int) {
	if c.batch != b.number {
		*c = searches{batch: b.number}
	}
	c.n += n
}

// missedTick is what happens to a missed tick. Those before it are skipped with it.
type missedTick struct {
	tick     calendar.Tick
	decision fsm.Decision
}

// missed decides the ticks that were missed, by the rule of the schedule. first is the
// oldest of them.
func (t *schedules) missed(b *batch, x *fsm.Schedule, s *schedule, first calendar.Tick) missedTick {
	t.searches.add(b, 1)
	newest := t.newestMissed(b, s, first)
	m := missedTick{tick: newest, decision: fsm.TickRuns}
	oldest := b.wall.Add(-time.Duration(min(x.WithinMS, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond)
	if x.Missed == fsm.MissedSkip || newest.At.Before(oldest) {
		m.decision = fsm.TickSkippedMissed
	} else if x.Missed == fsm.MissedAll {
		m = t.oldestOfAll(b, s, first, newest, oldest)
	}
	return m
}

// newestMissed returns the last tick that was missed.
func (t *schedules) newestMissed(b *batch, s *schedule, first calendar.Tick) calendar.Tick {
	until := b.wall
	for range maxCounted { // ticks that jitter delays are not late yet
		tick, ok := s.calendar.Last(first.At, until)
		switch {
		case !ok:
			return first
		case b.wall.Sub(tick.Start) > LateAfter:
			return tick
		}
		until = tick.At.Add(-time.Second)
	}
	if tick, ok := s.calendar.Last(first.At, b.wall.Add(-LateAfter-s.calendar.Jitter())); ok {
		return tick
	}
	return first
}

// oldestOfAll returns the oldest of the missed ticks that run, or skips those before it.
func (t *schedules) oldestOfAll(b *batch, s *schedule, first, newest calendar.Tick, oldest time.Time) missedTick {
	if !first.At.Before(oldest) && countTicks(s.calendar, first, newest, maxMissedRuns) < maxMissedRuns {
		return missedTick{tick: first, decision: fsm.TickRuns}
	}
	t.searches.add(b, maxSearches) // it takes as long as a hundred others
	run := newest
	for range maxMissedRuns - 1 {
		tick, ok := s.calendar.Last(first.At.Add(-time.Second), run.At.Add(-time.Second))
		if !ok || tick.At.Before(oldest) {
			break
		}
		run = tick
	}
	if skipped, ok := s.calendar.Last(first.At.Add(-time.Second), run.At.Add(-time.Second)); ok {
		return missedTick{tick: skipped, decision: fsm.TickSkippedMissed}
	}
	return missedTick{tick: run, decision: fsm.TickRuns}
}

// countTicks counts the ticks from one until before another, up to a limit.
func countTicks(c *calendar.Schedule, from, end calendar.Tick, limit uint32) uint32 {
	n := uint32(0)
	for ok := true; ok && from.At.Before(end.At) && n < limit; n++ {
		from, ok = c.Next(from.At)
	}
	return n
}
