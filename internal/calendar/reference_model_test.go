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

var whole = flag.Bool("calendar.whole", false, "compare every expression around every transition, and more years")

// A naive expression.
type naive struct {
	text   string
	sets   [6][64]bool // second, minute, hour, day, month, weekday
	either bool
	fixed  bool
}

// draw draws an expression of five fields.
func draw(r *rand.Rand) naive {
	n := naive{fixed: true}
	n.sets[0][0] = true
	texts := make([]string, 6)
	restricted := 0
	for i, bound := range [][2]int{1: {0, 59}, 2: {0, 23}, 3: {1, 31}, 4: {1, 12}, 5: {0, 6}} {
		if i == 0 {
			continue
		}
		stars := []float64{1: 0.1, 2: 0.3, 3: 0.7, 4: 0.9, 5: 0.7}[i]
		if r.Float64() < stars {
			texts[i] = "*"
			for v := bound[0]; v <= bound[1]; v++ {
				n.sets[i][v] = true
			}
			n.fixed = n.fixed && i > 2
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
				n.fixed = false
			case kind == 1 && low < bound[1]:
				high = low + 1 + r.IntN(bound[1]-low)
				text += "-" + strconv.Itoa(high)
				n.fixed = n.fixed && i > 2
			}
			for v := low; v <= high; v += step {
				n.sets[i][v] = true
			}
			items = append(items, text)
		}
		texts[i] = strings.Join(items, ",")
	}
	n.either = restricted == 2
	n.text = strings.Join(texts[1:], " ")
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

func (n *naive) matches(c *clock) bool {
	if !n.sets[1][c.minute] || !n.sets[2][c.hour] || !n.sets[4][c.month] || !n.sets[0][c.second] {
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
	shown   []clock       // at each step
	seen    map[int64]int // civil → how often
	missing []clock       // civil times that are never shown, with the first instant after them
	from    int64         // ticks are compared from here
	to      int64         // to before here
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
	w := &window{zone: zone, seen: map[int64]int{}, from: from + 2*daySeconds, to: to - 2*daySeconds}
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
		w.seen[c.civil]++
		w.shown = append(w.shown, c)
	}
	return w
}

// ticks returns the instants at which an expression fires.
func (w *window) ticks(n *naive, gap Gap, repeat Repeat) []int64 {
	var list []int64
	done := map[int64]bool{}
	for i := range w.shown {
		c := &w.shown[i]
		if !n.matches(c) {
			continue
		}
		if n.fixed && repeat == Once && w.seen[c.civil] > 1 {
			if done[c.civil] {
				continue
			}
			done[c.civil] = true
		}
		list = append(list, c.at)
	}
	for i := range w.missing {
		c := &w.missing[i]
		if n.fixed && gap == RunAfter && n.matches(c) && w.seen[c.civil] == 0 {
			list = append(list, c.at)
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(at int64) bool { return at < w.from || at >= w.to })
}

// compare compares a schedule with the walk.
func (w *window) compare(t *testing.T, n *naive, gap Gap, repeat Repeat) {
	t.Helper()
	e, err := ParseCron(n.text)
	if err != nil && strings.HasPrefix(err.Error(), "never fires") && len(w.ticks(n, gap, repeat)) == 0 {
		return
	}
	if err != nil {
		t.Fatalf("%q: %v", n.text, err)
	}
	s := &Schedule{zone: w.zone, first: -1 << 60, last: maxInstant}
	s.rules = []rule{&cronRule{e, w.zone, gap, repeat, &s.except}}
	var got []int64
	for from := w.from; ; {
		f, ok := s.next(from)
		if !ok || f.at >= w.to {
			break
		}
		if f.at < from {
			t.Fatalf("%s: %q: the tick %s is before %s", w.zone, n.text, stamp(f.at, w.zone), stamp(from, w.zone))
		}
		got, from = append(got, f.at), f.at+1
	}
	want := w.ticks(n, gap, repeat)
	if slices.Equal(got, want) {
		return
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%s: %q (fixed: %v, gap %d, repeat %d): tick %d: got %s, want %s", w.zone, n.text, n.fixed, gap, repeat, i, nth(got, i, w.zone), nth(want, i, w.zone))
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

// around is how far a walk reaches on both sides of a transition.
const around = 5 * 24 * time.Hour

var policies = []struct {
	gap    Gap
	repeat Repeat
}{{RunAfter, Once}, {RunAfter, Twice}, {SkipGap, Once}, {SkipGap, Twice}}

func TestEveryTickAroundATransitionIsThatOfTheReferenceModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(17, 6)) //nolint:gosec // repeatable
	expressions := make([]naive, 200)
	for i := range expressions {
		expressions[i] = draw(r)
	}
	all := shifts(t)
	t.Logf("%d distinct transitions", len(all))
	if len(all) < 1000 {
		t.Fatal("too few transitions")
	}
	tried := 0
	for i, s := range all {
		if !*whole && i%20 != 0 {
			continue
		}
		begin := s.at - int64(around/time.Second)
		w := walk(s.zone, begin-begin%60, s.at+int64(around/time.Second))
		for k := range expressions {
			if !*whole && (k+i/20)%20 != 0 {
				continue
			}
			for _, p := range policies {
				w.compare(t, &expressions[k], p.gap, p.repeat)
				tried++
				if !expressions[k].fixed {
					break // no policy applies
				}
			}
		}
	}
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
				n := draw(r)
				p := policies[r.IntN(len(policies))]
				w.compare(t, &n, p.gap, p.repeat)
			}
		}
	}
}
