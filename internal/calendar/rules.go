package calendar

import (
	"cmp"
	"slices"
	"time"
)

// A rule is a source of ticks.
type rule interface {
	// next returns the first tick from one instant to another.
	next(from, limit int64) (found, bool)
}

// A found is a tick that a rule has found.
type found struct {
	at      int64 // instant
	civil   civil // the wall-clock time that was wanted, the latest if several fall together
	own     bool  // the wall clock shows a time that was wanted
	missing []civil
}

// merge adds another tick at the same instant.
func (f *found) merge(other found) {
	f.civil = max(f.civil, other.civil)
	f.own = f.own || other.own
	f.missing = append(slices.Clip(f.missing), other.missing...)
}

// A cronRule fires as an expression in a zone does.
type cronRule struct {
	e      *Expression
	zone   *time.Location
	gap    Gap
	repeat Repeat
	except *exceptions
}

// A search caches the wall-clock time that was found last, so that a walk over many
// segments computes it once.
type search struct {
	rule     *cronRule
	low, hit civil // no time from low to before hit matches; none yet if hit < low
	limit    civil
}

// next returns the first wall-clock time from c on that matches and is not excluded, or
// one after the limit.
func (s *search) next(c civil) civil {
	if s.low <= c && c <= s.hit {
		return s.hit
	}
	s.low = c
	for s.hit = s.rule.e.next(c, s.limit); s.hit <= s.limit; s.hit = s.rule.e.next(s.hit, s.limit) {
		switch {
		case s.rule.except.coversDay(s.hit):
			s.hit = startOf(s.hit.day() + 1)
		case s.rule.except.covers(s.hit):
			s.hit++
		default:
			return s.hit
		}
	}
	return s.hit
}

func (r *cronRule) next(from, limit int64) (found, bool) {
	s := &search{rule: r, low: 1, limit: civil(limit + maxOffset)}
	for from <= limit {
		seg := segmentAt(r.zone, from)
		var moved []civil
		if from == seg.start {
			moved = r.inGap(s, seg)
		}
		f, ok := r.inSegment(s, seg, from)
		if len(moved) > 0 {
			after := found{at: seg.start, civil: moved[len(moved)-1], missing: moved}
			if ok && f.at == seg.start {
				after.merge(f)
			}
			return after, true
		}
		if ok {
			return f, f.at <= limit
		}
		from = seg.end
		if from >= int64(s.low)+maxOffset { // nothing matches until shortly before the hit, in whatever segment
			from = max(from, int64(s.hit)-maxOffset)
		}
	}
	return found{}, false
}

// inSegment returns the first tick of a segment, from an instant on.
func (r *cronRule) inSegment(s *search, seg segment, from int64) (found, bool) {
	for c := s.next(seg.civil(from)); ; c = s.next(c + 1) {
		at, ok := seg.instant(c)
		if !ok || c > s.limit {
			return found{}, false
		}
		if r.e.interval || r.repeat == Twice || !r.occurredBefore(seg, c) {
			return found{at: at, civil: c, own: true}, true
		}
	}
}

// occurredBefore reports whether the wall clock showed a time before a segment that shows
// it.
func (r *cronRule) occurredBefore(seg segment, c civil) bool {
	at, _ := seg.instant(c)
	if at-seg.start > 2*maxOffset {
		return false
	}
	return occurrences(r.zone, c)[0] < at
}

// inGap returns the times of a fixed expression that do not exist because the clock was
// set forward at the start of a segment, and that are moved there.
func (r *cronRule) inGap(s *search, seg segment) []civil {
	if r.e.interval || r.gap == SkipGap {
		return nil
	}
	before := segmentAt(r.zone, seg.start-1)
	var moved []civil
	for c := s.next(before.civil(seg.start)); c < seg.civil(seg.start); c = s.next(c + 60 - civil(c.second()%60)) { // one of each minute will do
		if len(occurrences(r.zone, c)) == 0 && gapEnd(r.zone, c) == seg.start {
			moved = append(moved, c)
		}
	}
	return moved
}

// An everyRule fires in equal distances.
type everyRule struct {
	anchor, period int64 // in seconds
	zone           *time.Location
	except         *exceptions
}

func (r *everyRule) next(from, limit int64) (found, bool) {
	for from <= limit {
		at := r.anchor
		if from > at {
			at += (from - at + r.period - 1) / r.period * r.period
		}
		if at > limit {
			break
		}
		seg := segmentAt(r.zone, at)
		c := seg.civil(at)
		switch {
		case r.except.coversDay(c): // the next day begins in this segment, or the next segment does
			from = min(int64(startOf(c.day()+1))-seg.offset, seg.end)
		case r.except.covers(c):
			from = at + 1
		default:
			return found{at: at, civil: c, own: true}, true
		}
	}
	return found{}, false
}

// An atRule fires at listed times.
type atRule struct{ list []found }

func (r *atRule) sort() {
	slices.SortFunc(r.list, func(a, b found) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.civil, b.civil)) })
	merged := r.list[:0]
	for _, f := range r.list {
		if n := len(merged); n > 0 && merged[n-1].at == f.at {
			merged[n-1].merge(f)
			continue
		}
		merged = append(merged, f)
	}
	r.list = merged
}

func (r *atRule) next(from, _ int64) (found, bool) {
	i, _ := slices.BinarySearchFunc(r.list, from, func(f found, at int64) int { return cmp.Compare(f.at, at) })
	if i == len(r.list) {
		return found{}, false
	}
	return r.list[i], true
}

// resolve returns the ticks of a listed time.
func resolve(p Point, zone *time.Location, gap Gap, repeat Repeat) []found {
	if p.is == instant {
		at := int64(p.at)
		return []found{{at: at, civil: segmentAt(zone, at).civil(at), own: true}}
	}
	var list []found
	for _, at := range occurrences(zone, p.at) {
		list = append(list, found{at: at, civil: p.at, own: true})
		if repeat == Once {
			break
		}
	}
	if len(list) == 0 && gap == RunAfter {
		list = append(list, found{at: gapEnd(zone, p.at), civil: p.at, missing: []civil{p.at}})
	}
	return list
}
