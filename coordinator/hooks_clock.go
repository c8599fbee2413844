package coordinator

import (
	"errors"
	"sync"
	"time"
)

// clockSetting is what POST /test/clock says. Each one replaces the one before:
// {} is the true time again.
type clockSetting struct {
	// OffsetMS is added to the true time of this moment, in milliseconds.
	OffsetMS int64 `json:"offset_ms"`
	// RatePermille is how fast the clock runs from there: 1000, the default, is
	// true, 950 loses a twentieth; at most 100,000.
	RatePermille *int64 `json:"rate_permille"`
	// Freeze lets it stand still.
	Freeze bool `json:"freeze"`
}

// maxOffset keeps the clock within the years that a date may have.
const maxOffset = 100 * 366 * 24 * time.Hour

// testClock is a wall clock that can be set. Safe for concurrent use.
type testClock struct {
	real func() time.Time

	mu       sync.Mutex // guards what follows
	at       time.Time  // true time of the last setting, with its monotonic reading
	shown    time.Time  // what the clock showed then
	permille int64
}

func newTestClock(wall func() time.Time) *testClock {
	c := &testClock{real: wall}
	_ = c.set(clockSetting{}) // the true time is always allowed
	return c
}

func (c *testClock) set(s clockSetting) error {
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
		return errors.New("offset_ms: at most a hundred years")
	case rate < 0 || rate > 100_000:
		return errors.New("rate_permille: 0 to 100000")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.real()
	c.shown, c.permille = c.at.Round(0).Add(offset), rate
	return nil
}

// now is what the clock shows. It has no monotonic reading: whoever measures with
// it measures wrongly, as with any wall clock.
func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := c.real().Sub(c.at)
	return c.shown.Add(passed / 1000 * time.Duration(c.permille))
}
