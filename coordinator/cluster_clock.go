package coordinator

import (
	"sync"
	"sync/atomic"
	"time"
)

// clusterClock shows the time by which credentials and join strings are made and expire: that
// of this replica's wall clock, unless more than half of the members agree on another one. A
// leader whose clock is wrong must neither lock everyone out nor let those in whose access has
// ended, nor give access for years in place of an hour.
//
// It differs from clockMonitor.agrees, which only allows what can't be undone: what expires by
// age waits while the clocks disagree. Callers can't wait, and so need a time.
//
// Safe for concurrent use.
type clusterClock struct {
	wall func() time.Time

	failed   atomic.Int32                 // comparisons without a majority
	first    sync.Once                    // closes compared
	compared chan struct{}                // closed when the time is known
	majority atomic.Pointer[clockReading] // the latest; nil: no majority has ever agreed
}

// maxFailed is after how many comparisons without a majority the clock of this replica counts.
const maxFailed = 3

func newClusterClock(wall func() time.Time) *clusterClock {
	return &clusterClock{wall: wall, compared: make(chan struct{})}
}

// now returns the time. Between two comparisons it follows the monotonic clock, so that a wall
// clock that is set meanwhile does not change it.
func (c *clusterClock) now() time.Time {
	own, last := c.wall(), c.majority.Load()
	if last == nil {
		return own
	}
	if expected := last.wall.Add(time.Since(last.at)); expected.Sub(own.Round(0)).Abs() > maxSkew {
		return expected
	}
	return own
}

// known reports whether the wall clock was compared with those of the others: a wrong one is not
// noticed before. If no majority agrees on a time, that of this replica decides in the end.
func (c *clusterClock) known() bool {
	select {
	case <-c.compared:
		return true
	default:
		return false
	}
}

// note tells the clock what a comparison has found.
func (c *clusterClock) note(found comparison) {
	switch {
	case found.majority != nil:
		c.majority.Store(found.majority)
	case found.of == 0 || c.failed.Add(1) < maxFailed: // Raft does not run yet, or others may answer soon
		return
	}
	c.first.Do(func() { close(c.compared) })
}
