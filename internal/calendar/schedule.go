package calendar

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"sort"
	"strconv"
	"time"
)

// A Schedule is when something fires. Use [New].
type Schedule struct {
	name        string
	zone        *time.Location
	jitter      time.Duration
	first, last int64 // instants: the bounds of all ticks
	rules       []rule
	except      exceptions
	inOrder     bool
	// complete has also the ticks that are excluded or skipped; nil if none can be.
	complete *Schedule
}

// A Tick is one nominal time of a schedule.
type Tick struct {
	At    time.Time // in the zone of the schedule; whole seconds
	Start time.Time // At and the jitter
	// Civil is the wall-clock time that the definition names, in seconds since 1970 as if
	// it were UTC. It differs from At for a tick that a gap has moved.
	Civil int64
	Note  string // what is unusual about it; empty = nothing
}

// InOrder reports whether the civil times of successive ticks grow, as their instants do.
// Then no tick of a wall-clock time may fire twice, whatever the zone's data. It does not
// hold for intervals, for instants and if repeats fire twice.
func (s *Schedule) InOrder() bool { return s.inOrder }

// Zone returns the zone of the schedule.
func (s *Schedule) Zone() *time.Location { return s.zone }

// Jitter returns the bound of the jitter.
func (s *Schedule) Jitter() time.Duration { return s.jitter }

// Next returns the first tick after an instant. It returns false if the schedule ends
// before, or if a cron expression has no tick within ten years.
func (s *Schedule) Next(after time.Time) (Tick, bool) {
	f, ok := s.next(min(max(after.Unix(), math.MinInt64/4), maxInstant) + 1)
	if !ok {
		return Tick{}, false
	}
	return s.tick(f), true
}

// Last returns the last tick after one instant and not after another. It returns false if
// nothing fires between them. It takes as long as some 40 calls of Next.
func (s *Schedule) Last(after, until time.Time) (Tick, bool) {
	first, end := max(after.Unix(), 0), min(until.Unix(), maxInstant)
	if first >= end {
		return Tick{}, false
	}
	// It is the smallest instant that no tick follows until the end.
	at := first + int64(sort.Search(int(end-first), func(n int) bool {
		f, ok := s.next(first + int64(n) + 1)
		return !ok || f.at > end
	}))
	if at == first {
		return Tick{}, false
	}
	f, ok := s.next(at)
	return s.tick(f), ok
}

// next returns the first tick from an instant on.
func (s *Schedule) next(from int64) (found, bool) {
	from = max(from, s.first)
	limit := s.last
	if from < s.last-horizon {
		limit = from + horizon
	}
	for from <= s.last {
		var best found
		ok := false
		for _, r := range s.rules {
			f, fires := r.next(from, limit)
			switch {
			case !fires || f.at > s.last:
			case !ok || f.at < best.at:
				best, ok = f, true
			case f.at == best.at:
				best.merge(f)
			}
		}
		if !ok || !s.except.coversInstant(best.at) {
			return best, ok
		}
		from = best.at + 1
	}
	return found{}, false
}

// tick describes a tick that was found.
func (s *Schedule) tick(f found) Tick {
	at := time.Unix(f.at, 0).In(s.zone)
	start := at.Add(s.delay(f.at))
	return Tick{At: at, Start: start, Civil: int64(f.civil), Note: s.note(f, start.Sub(at))}
}

// delay returns the jitter of a tick. It depends on the name of the schedule, and on the
// times of the tick and of the next one alone, so that every replica and every preview
// computes the same. It ends before the next tick: otherwise that one would wait for this
// one, and be late.
func (s *Schedule) delay(at int64) time.Duration {
	if s.jitter <= 0 {
		return 0
	}
	bound := s.jitter
	if next, ok := s.next(at + 1); ok {
		bound = min(bound, time.Duration(next.at-at)*time.Second)
	}
	sum := sha256.Sum256([]byte(s.name + "\x00" + strconv.FormatInt(at, 10)))
	return time.Duration(binary.BigEndian.Uint64(sum[:])%uint64(bound.Milliseconds())) * time.Millisecond //nolint:gosec // positive, and at most a day
}
