package simulation_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A leader whose process exits is replaced before raft's own timeout of 500 ms, however
// far the others are: a refused dial, a question, a vote, an entry and a barrier take a
// round trip each.
func TestADistantLeaderThatIsKilledIsReplacedWithinSixRoundTrips(t *testing.T) {
	t.Parallel()
	for _, roundTrip := range []time.Duration{0, 40 * time.Millisecond, 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			l := calmLife()
			l.distance = roundTrip / 2
			c := newCluster(t, 1, l)
			defer c.stopAll()
			var took []time.Duration
			for range 5 {
				leader := c.awaitLeader()
				<-time.After(5 * time.Second) // all links are open
				began := time.Now()
				c.kill(true, leader)
				for c.leader() == nil {
					<-time.After(time.Millisecond)
				}
				took = append(took, time.Since(began))
				leader.start()
			}
			t.Logf("round trip %v: leading after %v", roundTrip, took)
			if longest, limit := slices.Max(took), 6*roundTrip+50*time.Millisecond; longest > limit {
				t.Errorf("with a round trip of %v, a leader was replaced after %v, want at most %v", roundTrip, longest, limit)
			}
		})
	}
}

// A leader that stops redirects its workers to the next leader. To elect it, to learn of it,
// to connect and to open a session takes eight to twelve round trips. Nobody waits for a
// fixed time.
func TestTheWorkersOfALeaderThatStopsAreRedirected(t *testing.T) {
	t.Parallel()
	for _, roundTrip := range []time.Duration{0, 40 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			l := calmLife()
			l.distance = roundTrip / 2
			c := newCluster(t, 1, l)
			defer c.stopAll()
			c.awaitLeader()
			ctx, cancel := context.WithCancel(t.Context())
			var submitting sync.WaitGroup
			submitting.Go(func() { c.ledger.submit(ctx, 500*time.Millisecond) })
			var took []time.Duration
			for range 5 {
				<-time.After(5 * time.Second)
				leader, before, began := c.awaitLeader(), c.sessions.Load(), time.Now()
				stopped := make(chan struct{})
				go func() {
					defer close(stopped)
					leader.stop()
				}()
				for c.sessions.Load() < before+int64(len(c.workers)) {
					<-time.After(time.Millisecond)
				}
				took = append(took, time.Since(began))
				<-stopped
				leader.start()
			}
			cancel()
			submitting.Wait()
			c.rest()
			t.Logf("round trip %v: all workers had their sessions after %v", roundTrip, took)
			// Once in some hundred stops, a worker or the election meets a pause of 100 ms: that of
			// a retry, or of a request to a replica with nothing new.
			limit, pause := 12*roundTrip+15*time.Millisecond, 100*time.Millisecond
			if slices.Sort(took); took[3] > limit || took[4] > limit+pause {
				t.Errorf("with a round trip of %v, the workers of a leader that stopped had their sessions after %v, want at most %v, and %v more once", roundTrip, took, limit, pause)
			}
		})
	}
}

// Whichever replica is slow, the leader included, every other one hears from the leader
// in time.
func TestASlowLinkIsNoReasonForAnElection(t *testing.T) {
	t.Parallel()
	for _, slow := range []func(c *cluster, leader *replica) *replica{
		func(_ *cluster, leader *replica) *replica { return leader },
		func(c *cluster, leader *replica) *replica {
			return c.replicas[(slices.Index(c.replicas, leader)+1)%replicaCount]
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 1, calmLife())
			defer c.stopAll()
			leader := c.awaitLeader()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var submitting sync.WaitGroup
			submitting.Go(func() { c.ledger.submit(ctx, time.Second) })
			<-time.After(5 * time.Second)
			terms, one := c.terms.Load(), slow(c, leader)
			for range 60 {
				c.net.setDelay(one.address, c.upTo(100*time.Millisecond)) // round trips of up to 100 ms
				<-time.After(time.Second)
			}
			if now := c.terms.Load(); now != terms || c.leader() != leader {
				t.Errorf("%d changes of the leader while the link of %s was slow", now-terms, one.id)
			}
			cancel()
			submitting.Wait()
			c.net.setDelay(one.address, 0)
			c.rest()
		})
	}
}
