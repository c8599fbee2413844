package coordinator

import (
	"context"
	"sync"
	"time"
)

const (
	// clocksEvery is how often the leader compares its wall clock.
	clocksEvery = 2 * time.Second
	// maxSkew is by how much two wall clocks may differ and still agree.
	maxSkew = 10 * time.Second
)

// clocks is the leader's duty of comparing its wall clock with those of the members.
// Ages of ended jobs, keys and results are judged by it, and what is forgotten is gone
// on every replica: so while it is not like that of a majority, nothing is forgotten
// because of its age. Nor is it before the first comparison of a term, nor from the
// moment on in which the clock is seen to jump, however long ago it was compared.
type clocks struct{ r *replica }

// agreement is a wall clock that was found to be right.
type agreement struct {
	wall time.Time // as it was shown
	at   time.Time // monotonic: when
}

// clockAgrees reports whether the wall clock is right as far as is known. It may be
// called concurrently.
func (r *replica) clockAgrees() bool {
	last := r.agreed.Load()
	if last == nil {
		return false
	}
	moved, passed := r.cfg.Wall().Sub(last.wall), time.Since(last.at)
	return (moved - passed).Abs() <= maxSkew
}

// Name implements leader.Duty.
func (clocks) Name() string { return "clocks" }

// Run implements leader.Duty.
func (d clocks) Run(ctx context.Context, _ uint64) error {
	defer d.r.agreed.Store(nil)
	tick := time.NewTicker(d.r.cfg.TimeScale.Scale(clocksEvery))
	defer tick.Stop()
	warned := false
	for {
		now := &agreement{wall: d.r.cfg.Wall().Round(0), at: time.Now()}
		agree, of := d.compare(ctx)
		right := agree > of/2
		if !right {
			now = nil
		}
		d.r.agreed.Store(now)
		switch {
		case ctx.Err() != nil:
		case !right && !warned:
			d.r.log.WarnContext(ctx, "the wall clock differs from most members', or they do not tell: nothing is forgotten because of its age", "agree", agree, "of", of)
		case right && warned:
			d.r.log.InfoContext(ctx, "the wall clock is like most members' again", "agree", agree, "of", of)
		}
		warned = !right
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// compare asks all members at once for their time, and gives how many, this one
// included, have the same.
func (d clocks) compare(ctx context.Context) (agree, of int) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	var mu sync.Mutex // guards agree
	var asking sync.WaitGroup
	members := d.r.node.Load().Servers()
	for _, s := range members {
		if s.ID == d.r.id {
			mu.Lock()
			agree++
			mu.Unlock()
			continue
		}
		asking.Go(func() {
			from := d.r.cfg.Wall()
			a, err := d.r.peers.Identify(ctx, s.Address)
			to := d.r.cfg.Wall()
			if err != nil || a.GetServerId() != s.ID {
				return
			}
			at := time.UnixMilli(a.GetWallMs())
			if !at.Before(from.Add(-maxSkew)) && !at.After(to.Add(maxSkew)) {
				mu.Lock()
				defer mu.Unlock()
				agree++
			}
		})
	}
	asking.Wait()
	return agree, len(members)
}
