package calendar

import (
	"fmt"
	"math"
	"time"
)

// A Gap is what happens to a fixed wall-clock time that does not exist on a day.
type Gap int

// The policies for gaps.
const (
	RunAfter Gap = iota + 1 // it fires right after the gap; the default
	SkipGap                 // it does not fire
)

// A Repeat is what happens to a fixed wall-clock time that occurs twice on a day.
type Repeat int

// The policies for repeats.
const (
	Once  Repeat = iota + 1 // it fires at the first occurrence; the default
	Twice                   // it fires at both
)

const (
	// MaxExpressions is the largest number of cron expressions of a schedule.
	MaxExpressions = 16
	// MaxTimes is the largest number of times that a schedule lists, and of exceptions.
	MaxTimes = 1000
	// MaxJitter is the largest jitter.
	MaxJitter = 24 * time.Hour
)

// Config is a definition of a schedule. Exactly one of Cron, Every and At is set.
type Config struct {
	Name   string         // decides, with the time of a tick, its jitter
	Cron   []*Expression  // the schedule fires when any of them does
	Every  time.Duration  // whole seconds, from From on, or from 1970-01-01T00:00:00Z
	At     []Point        // with a time of day
	Zone   *time.Location // nil = UTC
	Gap    Gap            // 0 = RunAfter
	Repeat Repeat         // 0 = Once
	Jitter time.Duration  // ticks start up to this much later; whole milliseconds
	From   Point          // no tick is before it; zero = no bound
	Until  Point          // no tick is after it; zero = no bound
	Except []Point        // dates, wall-clock times and instants without a tick
}

// check checks what concerns several fields.
func (c *Config) check() error {
	kinds := 0
	for _, set := range []bool{len(c.Cron) > 0, c.Every != 0, len(c.At) > 0} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return &Error{Field: "cron", What: "a schedule needs exactly one of cron, every and at", Do: "write one of them"}
	case len(c.Cron) > MaxExpressions:
		return &Error{Field: "cron", What: fmt.Sprintf("lists %d expressions", len(c.Cron)), Do: fmt.Sprintf("at most %d", MaxExpressions)}
	case len(c.At) > MaxTimes:
		return &Error{Field: "at", What: fmt.Sprintf("lists %d times", len(c.At)), Do: fmt.Sprintf("at most %d", MaxTimes)}
	case len(c.Except) > MaxTimes:
		return &Error{Field: "except", What: fmt.Sprintf("lists %d exceptions", len(c.Except)), Do: fmt.Sprintf("at most %d", MaxTimes)}
	case c.Every < 0 || c.Every%time.Second != 0:
		return &Error{Field: "every", What: fmt.Sprintf("%s is not a whole number of seconds", c.Every), Do: "write it like 90s, 10m or 1h"}
	case c.Jitter < 0 || c.Jitter%time.Millisecond != 0 || c.Jitter > MaxJitter:
		return &Error{Field: "jitter", What: fmt.Sprintf("%s is out of range", c.Jitter), Do: "write a duration up to 1d"}
	case c.Every != 0 && c.Jitter > c.Every:
		return &Error{Field: "jitter", What: "is longer than every", Do: "write a shorter one, so that runs keep their order"}
	}
	for i, p := range c.At {
		if !p.HasTime() {
			return &Error{Field: "at", Index: i, What: fmt.Sprintf("%q has no time of day", p), Do: fmt.Sprintf("write it like %sT08:00", p)}
		}
	}
	return nil
}

// bounds returns the first and the last instant at which the schedule may fire.
func (c *Config) bounds() (first, last int64, err error) {
	first, last = math.MinInt64/4, maxInstant
	if !c.From.IsZero() {
		first = c.From.first(c.Zone)
	}
	if !c.Until.IsZero() {
		last = c.Until.last(c.Zone)
	}
	if last < first && !c.From.IsZero() && !c.Until.IsZero() {
		return 0, 0, &Error{Field: "until", What: fmt.Sprintf("%q is before from, %q", c.Until, c.From), Do: "write a later time"}
	}
	return first, last, nil
}

// New returns the schedule of a definition. It rejects one that never fires: that has no
// tick within ten years of its begin. Without From, that is ten years before Until, or the
// year 2000. The error is [*Error].
func New(c Config) (*Schedule, error) {
	if c.Zone == nil {
		c.Zone = time.UTC
	}
	if c.Gap == 0 {
		c.Gap = RunAfter
	}
	if c.Repeat == 0 {
		c.Repeat = Once
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	first, last, err := c.bounds()
	if err != nil {
		return nil, err
	}
	s := &Schedule{name: c.Name, zone: c.Zone, jitter: c.Jitter, first: first, last: last, inOrder: c.Repeat == Once}
	if len(c.Except) > 0 || c.Gap == SkipGap {
		s.complete = s.without(c)
	}
	s.except.add(c.Except)
	if err := s.addRules(c); err != nil {
		return nil, err
	}
	if err := s.fires(c); err != nil {
		return nil, err
	}
	return s, nil
}

// without returns the same schedule without exceptions and skipped ticks.
func (s *Schedule) without(c Config) *Schedule {
	all := *s
	c.Gap = RunAfter
	_ = all.addRules(c) // its errors are those of the schedule
	return &all
}

// addRules adds what fires.
func (s *Schedule) addRules(c Config) error {
	for _, e := range c.Cron {
		s.inOrder = s.inOrder && !e.interval
		s.rules = append(s.rules, &cronRule{e, s.zone, c.Gap, c.Repeat, &s.except})
	}
	if c.Every != 0 {
		anchor := int64(0)
		if !c.From.IsZero() {
			anchor = s.first
		}
		s.inOrder = false
		s.rules = append(s.rules, &everyRule{anchor, int64(c.Every / time.Second), s.zone, &s.except})
	}
	if len(c.At) == 0 {
		return nil
	}
	type times struct {
		at    int64
		civil civil
	}
	r, seen := new(atRule), make(map[times]struct{}, len(c.At))
	for i, p := range c.At {
		for _, f := range resolve(p, s.zone, c.Gap, c.Repeat) {
			if _, twice := seen[times{f.at, f.civil}]; twice {
				return &Error{Field: "at", Index: i, What: fmt.Sprintf("duplicate time %q", p), Do: "remove one of them"}
			}
			if !s.except.covers(f.civil) {
				seen[times{f.at, f.civil}] = struct{}{}
				r.list = append(r.list, f)
			}
		}
		s.inOrder = s.inOrder && p.is == wallClock
	}
	r.sort()
	s.rules = append(s.rules, r)
	return nil
}

// fires reports a schedule without any tick.
func (s *Schedule) fires(c Config) error {
	begin := s.first
	switch {
	case !c.From.IsZero() || len(c.At) > 0:
	case !c.Until.IsZero():
		begin = s.last - horizon
	default:
		begin = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	if _, ok := s.next(begin); ok {
		return nil
	}
	if len(c.Except) > 0 {
		without := c
		without.Except = nil
		if _, err := New(without); err != nil {
			return err // the exceptions are not the reason
		}
	}
	e := &Error{Field: "cron", What: "never fires: it has no tick within ten years", Do: "change its days and months"}
	switch {
	case len(c.Except) > 0:
		e.Field, e.What, e.Do = "except", "never fires: the exceptions exclude every tick", "remove some of them"
	case !c.From.IsZero() || !c.Until.IsZero():
		e.Field, e.What, e.Do = "until", "never fires: it has no tick from "+or(c.From, "the begin")+" until "+or(c.Until, "ten years later"), "change the bounds"
		if c.Until.IsZero() {
			e.Field = "from"
		}
	case len(c.At) > 0:
		e.Field, e.What, e.Do = "at", "never fires: none of the times exists", "change the times, or write dst: {gap: run-after}"
	}
	return e
}

func or(p Point, text string) string {
	if p.IsZero() {
		return text
	}
	return p.text
}
