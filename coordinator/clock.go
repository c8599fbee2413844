package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/internal/timescale"
)

const (
	// clockInterval is how often the leader compares its wall clock.
	clockInterval = 2 * time.Second
	// clockTimeout is how long members may take to send their time.
	clockTimeout = 500 * time.Millisecond
	// maxSkew is the largest difference between two wall clocks that agree.
	maxSkew = 10 * time.Second
)

// clockMonitor is the leader's duty that compares its wall clock with those of the
// members. The age of finished jobs, keys and results is judged by that clock, and
// what expires is deleted on every replica. So nothing expires by age unless the clock
// agrees with a majority: not before the first comparison of a term, and not after
// the clock jumped since the last one.
type clockMonitor struct {
	serverID string
	wall     func() time.Time
	members  func() []raftnode.Server
	peers    *membership.Peers
	scale    timescale.Factor
	alarms   *membership.Alarms
	log      *slog.Logger

	agreed atomic.Pointer[clockReading] // nil while this replica does not lead, or the clock is not confirmed
}

// clockReading is a wall clock that agreed with a majority.
type clockReading struct {
	wall time.Time
	at   time.Time // monotonic
}

// agrees reports whether the wall clock is correct as far as is known. It is safe for
// concurrent use.
func (c *clockMonitor) agrees() bool {
	last := c.agreed.Load()
	if last == nil {
		return false
	}
	moved, passed := c.wall().Sub(last.wall), time.Since(last.at)
	return (moved - passed).Abs() <= maxSkew
}

// Name implements leader.Duty.
func (*clockMonitor) Name() string { return "clock" }

// Run implements leader.Duty.
func (c *clockMonitor) Run(ctx context.Context, _ uint64) error {
	defer c.agreed.Store(nil)
	defer c.alarms.Clear(membership.AlarmClockSkew)
	tick := time.NewTicker(c.scale.Scale(clockInterval))
	defer tick.Stop()
	warned := false
	for {
		now := &clockReading{wall: c.wall().Round(0), at: time.Now()}
		agree, of := c.compare(ctx)
		skewed := agree <= of/2
		if skewed {
			now = nil
		}
		c.agreed.Store(now)
		c.alarms.Set(membership.AlarmClockSkew, skewed && ctx.Err() == nil, fmt.Sprintf(
			"the wall clock agrees with %d of %d members, so nothing expires by age and no schedule fires: set the clocks of the machines", agree, of))
		switch {
		case ctx.Err() != nil:
		case skewed && !warned:
			c.log.WarnContext(ctx, "clock skew detected; age-based expiry suspended",
				"agreeing", agree, "members", of)
		case !skewed && warned:
			c.log.InfoContext(ctx, "clock skew ended; age-based expiry resumed",
				"agreeing", agree, "members", of)
		}
		warned = skewed
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// compare asks all members at once for their time, and returns how many agree, this
// replica included.
func (c *clockMonitor) compare(ctx context.Context) (agree, of int) {
	members := c.members()
	from := c.wall()
	answers := c.peers.IdentifyAll(ctx, members, c.serverID, clockTimeout)
	to := c.wall()
	for i, a := range answers {
		at := time.UnixMilli(a.GetWallMs())
		agrees := a != nil && !at.Before(from.Add(-maxSkew)) && !at.After(to.Add(maxSkew))
		if agrees || members[i].ID == c.serverID {
			agree++
		}
	}
	return agree, len(members)
}
