package faults

import (
	"errors"
	"sync"
	"time"
)

// clockSetting is the body of POST /test/clock. Each setting replaces the previous
// one: {} restores the true time.
type clockSetting struct {
	// OffsetMS is added to the current true time, in milliseconds.
	OffsetMS int64 `json:"offset_ms"`
	// RatePermille is the speed of the clock from then on: 1000, the default, is
	// true time, 950 loses a twentieth; at most 100,000.
	RatePermille *int64 `json:"rate_permille"`
	// Freeze stops the clock.
	Freeze bool `json:"freeze"`
}

// maxOffset keeps the clock within valid years.
const maxOffset = 100 * 366 * 24 * time.Hour

// clock is a wall clock that can be set. Safe for concurrent use.
type clock struct {
	real func() time.Time

	mu       sync.Mutex // guards the fields below
	at       time.Time  // true time of the last setting, with its monotonic reading
	shown    time.Time  // what the clock showed then
	permille int64
}

func newClock(wall func() time.Time) *clock {
	at := wall()
	return &clock{real: wall, at: at, shown: at.Round(0), permille: 1000}
}

func (c *clock) set(s clockSetting) error {
	rate := int64(1000)
	if s.RatePermille != nil {
		rate = *s.RatePermille
	}
	if s.Freeze {
		rate = 0
	}
	offset := time.Duration(s.OffsetMS) * time.Millisecond
	switch limit := maxOffset.Milliseconds(); {
	case s.OffsetMS < -limit || s.OffsetMS > limit:
		return errors.New("offset_ms: must be at most 100 years")
	case rate < 0 || rate > 100_000:
		return errors.New("rate_permille: must be 0 to 100000")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.real()
	c.shown, c.permille = c.at.Round(0).Add(offset), rate
	return nil
}

// now returns the time that the clock shows. It has no monotonic reading, so that
// code which measures durations with the wall clock fails here.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := c.real().Sub(c.at)
	return c.shown.Add(passed / 1000 * time.Duration(c.permille))
}
