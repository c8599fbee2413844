package sequencer

import (
	"fmt"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/calendar"
	"github.com/dtask/dtask/internal/zoneinfo"
)

// Calendar returns the calendar of a recurrence, by the time zones of this process. The
// name of the schedule decides the jitter of its ticks. The error names the invalid part;
// a stored recurrence is invalid only if this version of dtask no longer knows its zone.
func Calendar(name string, r *fsm.Recurrence) (*calendar.Schedule, error) {
	return calendarIn(zoneinfo.Load, name, r)
}

// calendarIn is Calendar with the time zones that a function returns.
func calendarIn(load func(string) (*time.Location, error), name string, r *fsm.Recurrence) (*calendar.Schedule, error) {
	zone, err := zoneOf(load, r.Zone)
	if err != nil {
		return nil, err
	}
	c := calendar.Config{
		Name: name, Every: time.Duration(r.EveryMS) * time.Millisecond, Zone: zone, Gap: calendar.Gap(r.Gap), Repeat: calendar.Repeat(r.Repeat),
		Jitter: time.Duration(r.JitterMS) * time.Millisecond,
	}
	for _, text := range r.Cron {
		e, err := calendar.ParseCron(text)
		if err != nil {
			return nil, fmt.Errorf("cron %q: %w", text, err)
		}
		c.Cron = append(c.Cron, e)
	}
	if c.At, err = points("at", r.At...); err != nil {
		return nil, err
	}
	if c.Except, err = points("except", r.Except...); err != nil {
		return nil, err
	}
	for _, bound := range []struct {
		field, text string
		into        *calendar.Point
	}{{"from", r.From, &c.From}, {"until", r.Until, &c.Until}} {
		if bound.text == "" {
			continue
		}
		if *bound.into, err = calendar.ParsePoint(bound.text); err != nil {
			return nil, fmt.Errorf("%s: %w", bound.field, err)
		}
	}
	made, err := calendar.New(c)
	if err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	return made, nil
}

func zoneOf(load func(string) (*time.Location, error), name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	zone, err := load(name)
	if err != nil {
		return nil, fmt.Errorf("timezone: %w", err)
	}
	return zone, nil
}

func points(field string, texts ...string) (list []calendar.Point, err error) {
	for _, text := range texts {
		p, err := calendar.ParsePoint(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		list = append(list, p)
	}
	return list, nil
}
