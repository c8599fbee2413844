package calendar

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// The tests in this file compare schedules with every and at, and their exceptions, with the walk
// of the reference model.

// drawPoint draws a time near a transition, or near the time that the clock shows after it. Wall-clock
// times are at even seconds, and instants at odd ones, so that no two of them are the same tick.
func drawPoint(r *rand.Rand, w *window, at int64, kinds ...pointKind) Point {
	kind, distance := kinds[r.IntN(len(kinds))], int64(near)
	if r.IntN(2) == 0 {
		distance = 2 * 60 * 60
	}
	if kind == instant {
		at += r.Int64N(2*distance) - distance
		p, _ := ParsePoint(time.Unix(at|1, 0).UTC().Format(time.RFC3339))
		return p
	}
	civil := read(at-r.Int64N(2), w.zone).civil + r.Int64N(2*distance) - distance // before or after the shift
	if r.IntN(2) == 0 {
		civil -= civil % 60
	}
	layout := "2006-01-02T15:04:05"
	if kind == date {
		layout = time.DateOnly
	}
	p, _ := ParsePoint(time.Unix(civil&^1, 0).UTC().Format(layout))
	return p
}

// excludes reports whether a list of exceptions has a tick that the clock shows, or should show.
func excludes(except []Point, at, civil int64) bool {
	return slices.ContainsFunc(except, func(p Point) bool {
		switch p.is {
		case date:
			return strings.HasPrefix(time.Unix(civil, 0).UTC().Format("2006-01-02T"), p.text+"T")
		case wallClock:
			return int64(p.at) == civil
		default:
			return int64(p.at) == at
		}
	})
}

// begin returns the first instant at which the clock shows a time, or the end of the gap that has it.
func (w *window) begin(p Point) int64 {
	if p.is == instant {
		return int64(p.at)
	}
	for i := range w.shown {
		if c := &w.shown[i]; c.civil+w.step > int64(p.at) {
			return c.at + max(0, int64(p.at)-c.civil)
		}
	}
	return w.to
}

func TestEveryAroundATransitionIsThatOfTheReferenceModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(19, 6)) //nolint:gosec // repeatable
	ticks := 0
	aroundTransitions(t, 0, aroundTimes, func(_ int, w *window, s shift) {
		for range timesOfTransition() {
			unit := []time.Duration{time.Second, time.Minute, 15 * time.Minute, time.Hour}[r.IntN(4)]
			c := Config{Every: time.Duration(1+r.IntN(30)) * unit, Zone: w.zone}
			anchor := int64(0)
			if r.IntN(4) > 0 {
				c.From = drawPoint(r, w, s.at, date, wallClock, instant)
				anchor = w.begin(c.From)
			}
			for range r.IntN(4) {
				c.Except = append(c.Except, drawPoint(r, w, s.at, date, wallClock, instant))
			}
			period := int64(c.Every / time.Second)
			var want []int64
			for at := s.at - near; at < s.at+near; at++ {
				if (at < anchor && !c.From.IsZero()) || (at-anchor)%period != 0 || excludes(c.Except, at, read(at, w.zone).civil) {
					continue
				}
				want = append(want, at)
			}
			for _, p := range policies {
				c.Gap, c.Repeat = p.gap, p.repeat
				what := fmt.Sprintf("%s: every %s from %q except %q (gap %d, repeat %d)", w.zone, c.Every, c.From, c.Except, p.gap, p.repeat)
				schedule, err := New(c)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				same(t, what, w.zone, ticksOf(t, what, schedule, s.at-near, s.at+near), want)
			}
			ticks += len(want)
		}
	})
	t.Logf("%d ticks", ticks)
}

// aroundTimes is how far the walk of times reaches on both sides of a transition: all of them are
// less than a day from it.
const aroundTimes = 3 * 24 * time.Hour

// timesOfTransition returns how many schedules with every, or at, are tried around a transition.
func timesOfTransition() int {
	if *whole {
		return 50
	}
	return 4
}

// at returns the ticks of a listed time.
func (w *window) at(p Point, gap Gap, repeat Repeat) (list []int64) {
	if p.is == instant {
		return []int64{int64(p.at)}
	}
	wanted := int64(p.at)
	for i := range w.shown {
		c := &w.shown[i]
		if c.civil <= wanted && wanted < c.civil+w.step && (len(list) == 0 || repeat == Twice) {
			list = append(list, c.at+wanted-c.civil)
		}
	}
	for i := range w.missing {
		c := &w.missing[i]
		if c.civil <= wanted && wanted < c.civil+w.step && len(list) == 0 && gap == RunAfter {
			return []int64{c.at}
		}
	}
	return list
}

func TestListedTimesAroundATransitionAreThoseOfTheReferenceModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(20, 6)) //nolint:gosec // repeatable
	ticks := 0
	aroundTransitions(t, 0, aroundTimes, func(_ int, w *window, s shift) {
		for range timesOfTransition() {
			c := Config{Zone: w.zone}
			for range 1 + r.IntN(8) {
				p := drawPoint(r, w, s.at, wallClock, wallClock, wallClock, instant)
				if !slices.ContainsFunc(c.At, func(other Point) bool { return other.text == p.text }) {
					c.At = append(c.At, p)
				}
			}
			for range r.IntN(3) {
				c.Except = append(c.Except, drawPoint(r, w, s.at, date, wallClock, instant))
			}
			if r.IntN(2) == 0 {
				c.Except = append(c.Except, c.At[r.IntN(len(c.At))])
			}
			ticks += w.compareTimes(t, c)
		}
	})
	t.Logf("%d ticks", ticks)
}

// compareTimes compares listed times with the walk, with each policy, and returns how many ticks
// they have.
func (w *window) compareTimes(t *testing.T, c Config) (ticks int) {
	t.Helper()
	for _, p := range policies {
		c.Gap, c.Repeat = p.gap, p.repeat
		what := fmt.Sprintf("%s: at %q except %q (gap %d, repeat %d)", w.zone, c.At, c.Except, p.gap, p.repeat)
		var want []int64
		for _, listed := range c.At {
			for _, at := range w.at(listed, p.gap, p.repeat) {
				civil := int64(listed.at)
				if listed.is == instant {
					civil = read(at, w.zone).civil
				}
				if !excludes(c.Except, at, civil) {
					want = append(want, at)
				}
			}
		}
		slices.Sort(want)
		want = slices.Compact(want)
		s, err := New(c)
		if len(want) == 0 && err != nil && strings.Contains(err.Error(), "never fires") {
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		same(t, what, w.zone, ticksOf(t, what, s, w.from, w.to), want)
		ticks += len(want)
	}
	return ticks
}
