package calendar

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/internal/zoneinfo"
)

// drawSchedule draws a schedule; nil if the definition never fires.
func drawSchedule(rt *rapid.T) *Schedule {
	zone, err := zoneinfo.Load(rapid.SampledFrom(zoneinfo.Names()).Draw(rt, "zone"))
	if err != nil {
		rt.Fatal(err)
	}
	c := Config{
		Name: "x", Zone: zone, Gap: rapid.SampledFrom([]Gap{RunAfter, SkipGap}).Draw(rt, "gap"),
		Repeat: rapid.SampledFrom([]Repeat{Once, Twice}).Draw(rt, "repeat"),
	}
	day := func(name string) Point {
		at := rapid.Int64Range(0, 24000*daySeconds).Draw(rt, name)
		return Point{is: pointKind(rapid.IntRange(1, 3).Draw(rt, "kind")), at: civil(at - at%60)}
	}
	switch rapid.IntRange(0, 4).Draw(rt, "what") {
	case 0:
		c.Every = time.Duration(rapid.IntRange(60, 1_000_000).Draw(rt, "every")) * time.Second
	case 1:
		for range rapid.IntRange(1, 5).Draw(rt, "times") {
			p := day("time")
			p.is = max(p.is, wallClock)
			c.At = append(c.At, p)
		}
	default:
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1)) //nolint:gosec // repeatable
		for range rapid.IntRange(1, 3).Draw(rt, "expressions") {
			n := draw(r, rapid.Bool().Draw(rt, "seconds"))
			if e, err := ParseCron(n.text); err == nil {
				c.Cron = append(c.Cron, e)
			}
		}
	}
	if rapid.Bool().Draw(rt, "bounded") {
		c.From = day("from")
	}
	for range rapid.IntRange(0, 3).Draw(rt, "exceptions") {
		p := day("except")
		p.at -= civil(p.at.second()) * civil(min(1, int(p.is)%3))
		c.Except = append(c.Except, p)
	}
	s, err := New(c)
	if _, ok := errors.AsType[*Error](err); err != nil && !ok {
		rt.Fatalf("got %v", err)
	}
	if err != nil {
		return nil
	}
	return s
}

func TestTicksGrowAndDoNotDependOnWhereTheSearchBegins(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSchedule(rt)
		if s == nil {
			return
		}
		after := time.Unix(rapid.Int64Range(0, 24000*daySeconds).Draw(rt, "after"), 0)
		begin, first := after, true
		var last Tick
		for range 20 {
			tick, ok := s.Next(after)
			if !ok {
				return
			}
			if !tick.At.After(after) || tick.At.Unix() < s.first || tick.At.Unix() > s.last {
				rt.Fatalf("the tick after %s is %s", after, tick.At)
			}
			if !first && s.InOrder() && tick.Civil <= last.Civil {
				rt.Fatalf("civil time %d of %s does not follow %d of %s", tick.Civil, tick.At, last.Civil, last.At)
			}
			between := after.Add(time.Duration(rapid.Int64Range(0, max(0, tick.At.Unix()-after.Unix()-1)).Draw(rt, "between")) * time.Second)
			if again, ok := s.Next(between); !ok || again != tick {
				rt.Fatalf("after %s: %v, after %s: %v", after, tick, between, again)
			}
			last, after, first = tick, tick.At, false
		}
		if s.except.days == nil && s.complete == nil && len(s.Preview(begin, 20)) != 20 {
			rt.Fatal("the preview is shorter")
		}
	})
}

func FuzzParseCron(f *testing.F) {
	for _, text := range []string{"*/15 0-5,7 1,15 JAN-mar fri-SUN", "@daily", "1/2 * * * * *", "0 0 31 2 *", "0 0 L * *"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseCron(text)
		if err != nil {
			fault, ok := errors.AsType[*Error](err)
			if !ok || fault.What == "" || fault.Do == "" || fault.Offset < 0 || fault.Offset > len(text) {
				t.Fatalf("%q: incomplete error %#v", text, err)
			}
			return
		}
		again, err := ParseCron(e.String())
		if err != nil || *again != *e {
			t.Fatalf("%q became %v, %v", text, again, err)
		}
		s, err := New(Config{Cron: []*Expression{e}})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		tick, ok := s.Next(time.Unix(1_790_000_000, 0))
		if c := civil(tick.Civil); !ok || e.next(c, c) != c {
			t.Fatalf("%q: got %v, %v", text, tick, ok)
		}
	})
}

func FuzzParsePoint(f *testing.F) {
	for _, text := range []string{"2026-12-25", "2026-12-25T08:00", "2026-12-25T08:00:00+01:00", "2026-12-25 08:00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePoint(text)
		if fault, ok := errors.AsType[*Error](err); err != nil && (!ok || fault.What == "" || fault.Do == "") {
			t.Fatalf("%q: incomplete error %#v", text, err)
		}
		if err == nil && (p.IsZero() || p.first(time.UTC) > p.last(time.UTC)) {
			t.Fatalf("%q: got %v", text, p)
		}
	})
}

func BenchmarkNext(b *testing.B) {
	zone, err := zoneinfo.Load("America/New_York")
	if err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string]string{"nightly": "30 2 * * *", "every_minute": "* * * * *", "leap_day": "0 0 29 2 *"} {
		b.Run(name, func(b *testing.B) {
			e, err := ParseCron(text)
			if err != nil {
				b.Fatal(err)
			}
			s, err := New(Config{Cron: []*Expression{e}, Zone: zone})
			if err != nil {
				b.Fatal(err)
			}
			after := time.Date(2096, 3, 1, 0, 0, 0, 0, time.UTC)
			b.ReportAllocs()
			for b.Loop() {
				s.Next(after)
			}
		})
	}
}
