package calendar

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/zoneinfo"
)

// The tests in this file compare schedules with a naive walk: it steps through time, reads
// what the wall clock shows, and asks for each time whether the expression matches it. It
// shares no code with the package, and knows the expressions as sets of numbers.

var (
	whole           = flag.Bool("calendar.whole", false, "compare every expression around every transition, and more years")
	everyTransition = flag.Bool("calendar.every", false, "compare a share of the expressions around every transition")
	firstTransition = flag.Int("calendar.from", 0, "the first transition for expressions, to continue a run that was stopped")
)

// A naive expression.
type naive struct {
	text    string
	sets    [6][64]bool // second, minute, hour, day, month, weekday
	seconds bool        // has six fields
	either  bool
	fixed   bool
}

// draw draws an expression of five fields, or of six, of which the first one is the second.
func draw(r *rand.Rand, seconds bool) naive {
	n := naive{fixed: true, seconds: seconds}
	texts := make([]string, 6)
	restricted := 0
	for i, bound := range [][2]int{{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}} {
		if i == 0 && !seconds {
			n.sets[0][0] = true
			continue
		}
		decides := i == 1 || i == 2 // whether it is fixed
		stars := []float64{0.1, 0.1, 0.3, 0.7, 0.9, 0.7}[i]
		if r.Float64() < stars {
			texts[i] = "*"
			for v := bound[0]; v <= bound[1]; v++ {
				n.sets[i][v] = true
			}
			n.fixed = n.fixed && !decides
			continue
		}
		if i == 3 || i == 5 {
			restricted++
		}
		var items []string
		for range 1 + r.IntN(3) {
			low := bound[0] + r.IntN(bound[1]-bound[0]+1)
			if i == 2 && r.IntN(2) == 0 {
				low = r.IntN(4) // when most shifts are
			}
			high, step := low, 1
			text := strconv.Itoa(low)
			switch kind := r.IntN(8); {
			case kind == 0 && i <= 2:
				high, step = bound[1], 1+r.IntN(9)
				low, text = bound[0], "*/"+strconv.Itoa(step)
				n.fixed = n.fixed && !decides
			case kind == 1 && low < bound[1]:
				high = low + 1 + r.IntN(bound[1]-low)
				text += "-" + strconv.Itoa(high)
				n.fixed = n.fixed && !decides
			}
			for v := low; v <= high; v += step {
				n.sets[i][v] = true
			}
			items = append(items, text)
		}
		texts[i] = strings.Join(items, ",")
	}
	n.either = restricted == 2
	n.text = strings.TrimSpace(strings.Join(texts, " "))
	return n
}

// A clock is what a wall clock shows.
type clock struct {
	at, civil                                      int64
	second, minute, hour, monthDay, month, weekday int
}

func read(at int64, zone *time.Location) clock {
	t := time.Unix(at, 0).In(zone)
	_, offset := t.Zone()
	return clock{at, at + int64(offset), t.Second(), t.Minute(), t.Hour(), t.Day(), int(t.Month()), int(t.Weekday())}
}

func (n *naive) matches(c *clock) bool { return n.sets[0][c.second] && n.matchesMinute(c) }

func (n *naive) matchesMinute(c *clock) bool {
	if !n.sets[1][c.minute] || !n.sets[2][c.hour] || !n.sets[4][c.month] {
		return false
	}
	if n.either {
		return n.sets[3][c.monthDay] || n.sets[5][c.weekday]
	}
	return n.sets[3][c.monthDay] && n.sets[5][c.weekday]
}

// A window is a walk through some days.
type window struct {
	zone    *time.Location
	step    int64           // a minute, or a second
	shifts  []int64         // the transitions in it
	shown   []clock         // at each step
	first   map[int64]int64 // civil → the instant that shows it first
	missing []clock         // civil times that are never shown, with the first instant after them
	from    int64           // ticks are compared from here
	to      int64           // to before here
}

// walk reads the clocks of a zone from one instant to another; ticks of the days at the
// ends are not compared, because what is before and after them is unknown.
func walk(zone *time.Location, from, to int64) *window {
	step := int64(60)
	for at := from; at < to; at += 3600 {
		if c := read(at, zone); (c.civil-c.at)%60 != 0 {
			step = 1 // offsets with seconds, as in Liberia before 1972
		}
	}
	var shifts []int64
	for tr := range zoneinfo.Transitions(zone, time.Unix(from, 0), time.Unix(to, 0)) {
		shifts = append(shifts, tr.At.Unix())
		if tr.At.Unix()%60 != 0 {
			step = 1
		}
	}
	w := &window{zone: zone, step: step, shifts: shifts, first: map[int64]int64{}, from: from + 2*daySeconds, to: to - 2*daySeconds}
	highest := int64(0)
	for at := from; at < to; at += step {
		c := read(at, zone)
		if len(w.shown) > 0 {
			for civil := highest + step; civil < c.civil; civil += step { // not shown so far
				m := read(civil, time.UTC)
				m.at, m.civil = at, civil
				w.missing = append(w.missing, m)
			}
		}
		highest = max(highest, c.civil)
		if len(w.shown) == 0 {
			highest = c.civil
		}
		if _, again := w.first[c.civil]; !again {
			w.first[c.civil] = at
		}
		w.shown = append(w.shown, c)
	}
	return w
}

// read returns what the wall clock shows in the seconds of a step that match an expression.
func (w *window) read(n *naive, c *clock) (list []clock) {
	if w.step == 1 || !n.seconds {
		if n.matches(c) {
			list = append(list, *c)
		}
		return list
	}
	if !n.matchesMinute(c) {
		return nil
	}
	for at := c.at; at < c.at+w.step; at++ {
		if n.sets[0][at-c.at] {
			list = append(list, read(at, w.zone))
		}
	}
	return list
}

// ticks returns the instants from one to before another at which an expression fires.
func (w *window) ticks(n *naive, gap Gap, repeat Repeat, from, to int64) []int64 {
	var list []int64
	for i := range w.shown {
		c := &w.shown[i]
		if c.at+w.step <= from || c.at >= to || n.fixed && repeat == Once && w.first[c.civil] < c.at {
			continue
		}
		for _, shown := range w.read(n, c) {
			list = append(list, shown.at)
		}
	}
	for i := range w.missing {
		c := &w.missing[i]
		if _, shown := w.first[c.civil]; !shown && n.fixed && gap == RunAfter && (n.matches(c) || w.step > 1 && n.matchesMinute(c)) {
			list = append(list, c.at)
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(at int64) bool { return at < from || at >= to })
}

// compare compares a schedule with the walk, from one instant to before another, with each policy.
func (w *window) compare(t *testing.T, n *naive, from, to int64) {
	t.Helper()
	e, err := ParseCron(n.text)
	if err != nil && strings.HasPrefix(err.Error(), "never fires") && len(w.ticks(n, RunAfter, Twice, from, to)) == 0 {
		return
	}
	if err != nil {
		t.Fatalf("%q: %v", n.text, err)
	}
	want := w.ticks(n, RunAfter, Once, from, to)
	for i, p := range policies {
		s := &Schedule{zone: w.zone, first: -1 << 60, last: maxInstant}
		s.rules = []rule{&cronRule{e, w.zone, p.gap, p.repeat, &s.except}}
		what := fmt.Sprintf("%s: %q (fixed: %v, gap %d, repeat %d)", w.zone, n.text, n.fixed, p.gap, p.repeat)
		switch {
		case n.fixed:
			same(t, what, w.zone, ticksOf(t, what, s, from, to), w.ticks(n, p.gap, p.repeat, from, to))
		case i == 0:
			same(t, what, w.zone, ticksOf(t, what, s, from, to), want)
		default: // a policy must not matter, and could where the clock is set only
			for _, at := range w.shifts {
				begin, end := max(from, at-near), min(to, at+near)
				other := func(at int64) bool { return at < begin || at >= end }
				same(t, what, w.zone, ticksOf(t, what, s, begin, end), slices.DeleteFunc(slices.Clone(want), other))
			}
		}
	}
}

// ticksOf returns the ticks of a schedule from one instant to before another.
func ticksOf(t *testing.T, what string, s *Schedule, from, to int64) (list []int64) {
	t.Helper()
	for {
		f, ok := s.next(from)
		if !ok || f.at >= to {
			return list
		}
		if f.at < from {
			t.Fatalf("%s: the tick %s is before %s", what, stamp(f.at, s.zone), stamp(from, s.zone))
		}
		list, from = append(list, f.at), f.at+1
	}
}

// same reports the first tick that differs.
func same(t *testing.T, what string, zone *time.Location, got, want []int64) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%s: tick %d: got %s, want %s", what, i, nth(got, i, zone), nth(want, i, zone))
		}
	}
}

func stamp(at int64, zone *time.Location) string {
	return time.Unix(at, 0).In(zone).Format(time.RFC3339)
}

func nth(list []int64, i int, zone *time.Location) string {
	if i >= len(list) {
		return "none"
	}
	return stamp(list[i], zone)
}

// A shift is a transition of a zone.
type shift struct {
	zone *time.Location
	at   int64
}

// shifts returns the transitions of all zones from 1970 to 2037, each once: zones that
// share the offsets of the days around it share the transition.
func shifts(t *testing.T) []shift {
	t.Helper()
	begin, end := time.Date(1970, 1, 4, 0, 0, 0, 0, time.UTC), time.Date(2038, 1, 1, 0, 0, 0, 0, time.UTC)
	known := map[string]bool{}
	var list []shift
	for _, name := range zoneinfo.Names() {
		zone, err := zoneinfo.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		for tr := range zoneinfo.Transitions(zone, begin, end) {
			key := ""
			for near := range zoneinfo.Transitions(zone, tr.At.Add(-around), tr.At.Add(around)) {
				key += fmt.Sprint(near.At.Unix(), near.Before, near.After, " ")
			}
			if !known[key] {
				known[key] = true
				list = append(list, shift{zone, tr.At.Unix()})
			}
		}
	}
	return list
}

const (
	// around is how far the walk of expressions reaches on both sides of a transition.
	around = 5 * 24 * time.Hour
	// near is how far, in seconds, schedules that may fire each second are compared there.
	near = 6 * 60 * 60
)

var policies = []struct {
	gap    Gap
	repeat Repeat
}{{RunAfter, Once}, {RunAfter, Twice}, {SkipGap, Once}, {SkipGap, Twice}}

// aroundTransitions calls a function with a walk around each transition, or around a twentieth of
// them, and a number that grows by one each time. It begins with the transition number first. A walk
// reaches as far as reach on both sides.
func aroundTransitions(t *testing.T, first int, reach time.Duration, f func(i int, w *window, s shift)) {
	t.Helper()
	all := shifts(t)
	if len(all) < 1000 {
		t.Fatalf("%d distinct transitions, want more", len(all))
	}
	every, begun, progress := 20, time.Now(), 0
	if *whole || *everyTransition {
		every = 1
	}
	for i := first; i < len(all) && !t.Failed(); i += every {
		s := all[i]
		begin := s.at - int64(reach/time.Second)
		f(i/every, walk(s.zone, begin-begin%60, s.at+int64(reach/time.Second)), s)
		if done := i + 1; *whole && done*100/len(all) > progress {
			progress = done * 100 / len(all)
			t.Logf("%d of %d transitions after %s", done, len(all), time.Since(begun).Round(time.Second))
		}
	}
	t.Logf("%d distinct transitions", len(all))
}

func TestEveryTickAroundATransitionIsThatOfTheReferenceModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(17, 6)) //nolint:gosec // repeatable
	expressions := make([]naive, 400)
	for i := range expressions {
		expressions[i] = draw(r, i%2 == 1)
	}
	tried := 0
	aroundTransitions(t, *firstTransition, around, func(i int, w *window, s shift) {
		for k := range expressions {
			seconds := expressions[k].seconds
			if share := map[bool]int{false: 20, true: 40}[seconds]; !*whole && (k/2+i)%share != 0 {
				continue
			}
			from, to := w.from, w.to
			if seconds {
				from, to = s.at-near, s.at+near
			}
			w.compare(t, &expressions[k], from, to)
			tried += len(policies)
		}
	})
	t.Logf("%d comparisons", tried)
}

// Zones of all kinds: shifts of half an hour, at midnight, around Ramadan, on other days
// in each hemisphere, and none.
var wholeYears = []string{
	"Africa/Casablanca", "America/New_York", "America/Sao_Paulo", "Asia/Beirut", "Asia/Tehran", "Australia/Lord_Howe", "Europe/Berlin",
	"Europe/Dublin", "Pacific/Apia", "Asia/Kolkata",
}

func TestEveryTickOfWholeYearsIsThatOfTheReferenceModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(18, 6)) //nolint:gosec // repeatable
	last, names := 2002, wholeYears[5:8]
	if *whole {
		last, names = 2021, wholeYears
	}
	for _, name := range names {
		zone, err := zoneinfo.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		for year := 2002; year <= last; year++ {
			w := walk(zone, time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(year+1, 1, 10, 0, 0, 0, 0, time.UTC).Unix())
			for range 20 {
				n := draw(r, false)
				w.compare(t, &n, w.from, w.to)
			}
		}
	}
}
