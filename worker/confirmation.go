package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/worker/process"
)

// defaultFreshness is the freshness if the leader doesn't state its liveness
// timeout.
const defaultFreshness = 2 * time.Second

// freshnessFor returns how long an answered heartbeat proves that the leader
// counts this worker as up: two thirds of the leader's liveness timeout, which
// is 2,000 ms by default. The leader counts from receiving the heartbeat and
// this worker from sending it, so at least a third of the timeout remains
// between the last start here and a first start elsewhere.
func freshnessFor(livenessTimeout time.Duration) time.Duration {
	if livenessTimeout <= 0 {
		return defaultFreshness
	}
	return livenessTimeout * 2 / 3
}

// confirmation proves that the leader counted this worker as up when the
// worker sent a heartbeat: the leader answered it.
type confirmation struct {
	sent      time.Time // when the heartbeat was sent, not when it was answered
	freshness time.Duration
	replaced  chan struct{} // closed when a later confirmation replaces this one
}

// confirmations holds the last confirmation. Attempts start only while it is
// fresh: after a longer silence the leader may have given them to others. It
// is read at each start, so reading it takes no lock.
type confirmations struct {
	last      atomic.Pointer[confirmation] // never nil
	requested atomic.Bool                  // a start waits: the session sends a heartbeat
}

func newConfirmations() *confirmations {
	c := &confirmations{}
	c.last.Store(&confirmation{replaced: make(chan struct{})})
	return c
}

// renew records that the leader answered a heartbeat that was sent at this
// time. Only one session at a time calls it.
func (c *confirmations) renew(sent time.Time, freshness time.Duration) {
	last := c.last.Load()
	if !sent.After(last.sent) {
		return
	}
	c.last.Store(&confirmation{sent: sent, freshness: freshness, replaced: make(chan struct{})})
	c.requested.Store(false)
	close(last.replaced)
}

// fresh reports whether attempts may start now.
//
// The monotonic clock decides. It continues while this process is stopped
// (SIGSTOP), but on Linux not while the machine is suspended or its virtual
// machine is paused. The wall clock is corrected after either, so its reading
// counts if it shows that more time has passed. If it was set forward instead,
// the next start waits for one heartbeat. CLOCK_BOOTTIME would cover suspension
// only, and costs a system call for each start.
func (c *confirmations) fresh(now time.Time) bool {
	last := c.last.Load()
	return max(now.Sub(last.sent), now.Round(0).Sub(last.sent.Round(0))) < last.freshness
}

// expiry returns until when a program may be started, as a reading of
// process.Monotonic. That clock is read first: if this process is stopped in
// between, the result is too early.
func (c *confirmations) expiry() time.Duration {
	clock, now := process.Monotonic(), time.Now()
	last := c.last.Load()
	return clock + last.freshness - max(now.Sub(last.sent), now.Round(0).Sub(last.sent.Round(0)))
}

// awaitFresh waits until attempts may start, and reports false if ctx is done
// first. request is called before each wait.
func (c *confirmations) awaitFresh(ctx context.Context, request func()) bool {
	for {
		replaced := c.last.Load().replaced // before fresh: a later confirmation is not missed
		if c.fresh(time.Now()) {
			return true
		}
		request()
		select {
		case <-replaced:
		case <-ctx.Done():
			return false
		}
	}
}
