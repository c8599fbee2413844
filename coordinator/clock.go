package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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
	// followInterval is how often every replica compares its wall clock, once it has.
	followInterval = 10 * time.Second
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
	cluster  *clusterClock // told of every comparison

	agreed atomic.Pointer[clockReading] // nil while this replica does not lead, or the clock is not confirmed
}

// clockReading is a wall clock that agreed with a majority.
type clockReading struct {
	wall time.Time
	at   time.Time // monotonic
	// skew is how far it was, at most, from the nearest clocks of more than half of the members.
	skew time.Duration
}

// agrees reports whether the wall clock is correct as far as is known. It is safe for
// concurrent use.
func (c *clockMonitor) agrees() bool {
	last := c.agreed.Load()
	if last == nil {
		return false
	}
	moved, passed := c.wall().Sub(last.wall), time.Since(last.at)
	return last.skew+(moved-passed).Abs() <= maxSkew
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
		found := c.compare(ctx)
		agree, of := found.agree, found.of
		skewed := agree <= of/2
		now.skew = found.skew
		if skewed {
			now = nil
		}
		c.agreed.Store(now)
		c.alarms.Set(membership.AlarmClockSkew, skewed && ctx.Err() == nil, fmt.Sprintf(
			"the wall clock agrees with %d of %d members, so nothing expires by age, no schedule fires, and tokens and join strings expire by %s: set the clocks of the machines",
			agree, of, found.decides()))
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

// watch compares the clocks until ctx is done, also while this replica does not lead: it must
// know the cluster's time when it begins to.
func (c *clockMonitor) watch(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		wait := followInterval
		if c.compare(ctx); !c.cluster.known() {
			wait = clockInterval
		}
		timer.Reset(c.scale.Scale(wait))
	}
}

// comparison is what a comparison of the wall clocks of the members has found.
type comparison struct {
	agree, of int           // members whose clocks agree with this replica's, it included
	skew      time.Duration // of the nearest clocks of more than half of the members; maxDistance: too few answered
	majority  *clockReading // the time on which more than half of the members agree; nil: on none
}

// decides names the clock by which credentials expire, for the alarm.
func (c comparison) decides() string {
	if c.majority == nil {
		return "this clock"
	}
	return "the clock of the majority"
}

// compare asks all members at once for their time, and tells the clock of the cluster.
func (c *clockMonitor) compare(ctx context.Context) comparison {
	members := c.members()
	from, began := c.wall().Round(0), time.Now()
	answers := c.peers.IdentifyAll(ctx, members, c.serverID, clockTimeout)
	// Not the wall clock: one that is set meanwhile would have every answer between two readings.
	at := time.Now()
	to := from.Add(at.Sub(began))
	var ahead []time.Duration // of this replica's clock, by member
	for i, a := range answers {
		switch {
		case members[i].ID == c.serverID:
			ahead = append(ahead, 0)
		case a != nil:
			ahead = append(ahead, distance(time.UnixMilli(a.GetWallMs()), from, to))
		}
	}
	found := comparison{of: len(members)}
	found.agree, found.skew = agreement(ahead, len(members))
	offset, ok := majorityOffset(ahead, len(members))
	if ok || found.agree > found.of/2 {
		found.majority = &clockReading{wall: to.Add(offset), at: at}
	}
	c.cluster.note(found)
	return found
}

// maxDistance bounds the difference of two clocks, so that sums of two can't overflow.
const maxDistance = 100 * 365 * 24 * time.Hour

// distance returns how far a time is after an interval; negative if it is before.
func distance(at, from, to time.Time) time.Duration {
	switch {
	case at.Before(from):
		return max(at.Sub(from), -maxDistance)
	case at.After(to):
		return min(at.Sub(to), maxDistance)
	}
	return 0
}

// agreement returns with how many of the members this replica's clock agrees, it included, and how
// far it is from the nearest clocks of more than half of them. ahead has those that are known.
func agreement(ahead []time.Duration, members int) (agree int, skew time.Duration) {
	var far []time.Duration
	for _, d := range ahead {
		if far = append(far, d.Abs()); d.Abs() <= maxSkew {
			agree++
		}
	}
	slices.Sort(far)
	if need := members/2 + 1; len(far) >= need {
		return agree, far[need-1]
	}
	return agree, maxDistance
}

// majorityOffset returns how far the clocks of more than half of the members are ahead of this
// replica's, of which ahead has those that are known: 0 if this replica's agrees with them. ok
// is false if there are not as many clocks within maxSkew.
func majorityOffset(ahead []time.Duration, members int) (offset time.Duration, ok bool) {
	need := members/2 + 1
	sorted := slices.Sorted(slices.Values(ahead))
	for first := 0; first+need <= len(sorted); first++ {
		group := sorted[first : first+need]
		if group[need-1]-group[0] > maxSkew {
			continue
		}
		if middle := group[need/2]; !ok || middle.Abs() < offset.Abs() {
			offset, ok = middle, true
		}
	}
	if offset.Abs() <= maxSkew {
		offset = 0
	}
	return offset, ok
}
