package worker

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestOutcomesAreNumberedWithoutGapsAndRepeatedUntilAcknowledged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		b := start(t, n, Config{Slots: 3, DrainTimeout: -1}, map[string]Handler{"ok": returns})
		defer b.finish()

		l := (<-r.sessions).welcome(t, 1)
		if got := l.hello.GetHello(); got.GetNextReport() != 1 || len(got.GetIncarnation()) != 32 || got.GetSlots() != 3 || l.hello.GetHeartbeat() != 1 {
			t.Errorf("hello = %v", l.hello)
		}
		var tasks []work
		for i := range uint32(100) {
			tasks = append(tasks, work{task: i, typ: "ok", body: &dtaskv1.TaskBody{Payload: fmt.Append(nil, i)}})
		}
		l.assign(t, tasks...)
		first := l.outcomes(t, 100)
		l.send(t, &dtaskv1.SessionResponse{Ack: &dtaskv1.Ack{Through: 40}})
		synctest.Wait()
		l.end <- refused(codes.Unavailable, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER})

		again := <-r.sessions
		hello := again.hello.GetHello()
		if hello.GetNextReport() != 41 || len(hello.GetEnded()) != 60 || len(hello.GetHeld()) != 0 {
			t.Errorf("second hello: got next %d, ended %d, held %d; want 41, 60, 0", hello.GetNextReport(), len(hello.GetEnded()), len(hello.GetHeld()))
		}
		if hello.GetIncarnation() != l.hello.GetHello().GetIncarnation() {
			t.Error("the incarnation changed between sessions")
		}
		again.welcome(t, 2)
		repeated := again.outcomes(t, 60)
		for number := uint64(41); number <= 100; number++ {
			if got, want := repeated[number].GetAttempt().GetTask(), first[number].GetAttempt().GetTask(); got != want {
				t.Errorf("outcome %d: got task %d, want %d", number, got, want)
			}
		}
		again.send(t, &dtaskv1.SessionResponse{Ack: &dtaskv1.Ack{Through: 100}})
		synctest.Wait()
		if got := b.worker.Stats(); got.Unsettled != 0 || got.Succeeded != 100 || got.Received != 100 {
			t.Errorf("stats = %+v", got)
		}
	})
}

func TestAttemptsOutliveSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		release := make(chan struct{})
		b := start(t, n, Config{Slots: 1, DrainTimeout: -1}, map[string]Handler{"wait": func(ctx context.Context, _ *Task) ([]byte, error) {
			select {
			case <-release:
				return []byte("done"), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
		defer b.finish()
		l := (<-r.sessions).welcome(t, 1)
		l.assign(t, work{task: 1, typ: "wait"}, work{task: 2, typ: "wait"})
		l.next(t, "began", func(m *dtaskv1.SessionRequest) bool { return len(m.GetReports().GetStarted()) > 0 })
		n.stop("n1:1")
		<-time.After(time.Minute) // no leader; the attempts continue

		r = n.listen("n1:1", nil)
		l = <-r.sessions
		if held := l.hello.GetHello().GetHeld(); len(held) != 2 || held[0].GetTask() != 1 || held[1].GetTask() != 2 {
			t.Errorf("got held %v, want tasks 1 and 2", held)
		}
		l.welcome(t, 2)
		l.next(t, "the new session", func(m *dtaskv1.SessionRequest) bool {
			return len(m.GetReports().GetStarted()) == 1 && m.GetReports().GetStarted()[0].GetAttempt().GetTask() == 1
		})
		close(release)
		if got := l.outcomes(t, 2); string(got[1].GetResult()) != "done" || string(got[2].GetResult()) != "done" {
			t.Errorf("outcomes = %v", got)
		}
	})
}

func TestAWorkerFollowsTheLeaderHint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		n.listen("follower:1", func() error {
			return refused(codes.FailedPrecondition, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER, LeaderAddress: "leader:1"})
		})
		r := n.listen("leader:1", nil)
		begun := time.Now()
		b := start(t, n, Config{Join: []string{"follower:1"}, DrainTimeout: -1}, nil)
		defer b.finish()
		(<-r.sessions).welcome(t, 1)
		if took := time.Since(begun); took > 0 {
			t.Errorf("got the hint followed after %v, want immediately", took)
		}
	})
}

func TestAWorkerFollowsTheLeaderThatTransfersLeadership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		old, next := n.listen("n1:1", nil), n.listen("n3:1", nil)
		n.listen("n2:1", func() error { t.Error("another coordinator was asked"); return nil })
		b := start(t, n, Config{Join: []string{"n1:1", "n2:1"}, DrainTimeout: -1}, nil)
		defer b.finish()
		l := (<-old.sessions).welcome(t, 1)
		synctest.Wait()
		begun := time.Now()
		l.end <- refused(codes.FailedPrecondition, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER, LeaderAddress: "n3:1"})
		(<-next.sessions).welcome(t, 2)
		if took := time.Since(begun); took > 0 {
			t.Errorf("the next leader got the session after %v, want immediately", took)
		}
	})
}

func TestABusyLeaderIsRetriedAfterItsDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		n.listen("n1:1", func() error {
			return refused(codes.ResourceExhausted, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_BUSY, RetryAfterMs: 4000})
		})
		begun := time.Now()
		b := start(t, n, Config{Join: []string{"n1:1", "n2:1"}, DrainTimeout: -1}, nil)
		defer b.finish()
		synctest.Wait()
		n.stop("n1:1")
		r := n.listen("n1:1", nil)
		<-r.sessions
		if took := time.Since(begun); took < 4*time.Second || took > 7*time.Second {
			t.Errorf("got a retry after %v, want 4 to 6 s", took)
		}
	})
}

func TestAWorkerMayStartBeforeAnyCoordinator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		b := start(t, n, Config{Join: []string{"n1:1", "n2:1", "n3:1"}, DrainTimeout: -1}, nil)
		defer b.finish()
		<-time.After(10 * time.Minute)
		up := time.Now()
		r := n.listen("n2:1", nil)
		<-r.sessions
		if took := time.Since(up); took > 3*maxBackoff {
			t.Errorf("got a session after %v, want at most one round of %v pauses", took, maxBackoff)
		}
	})
}

func TestAHungLeaderIsLeftWithin2500ms(t *testing.T) {
	t.Parallel()
	for name, welcomed := range map[string]bool{"before the welcome": false, "in a session": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				hung, other := n.listen("n1:1", nil), n.listen("n2:1", nil)
				begun := time.Now()
				b := start(t, n, Config{Join: []string{"n1:1", "n2:1"}, Slots: 1, DrainTimeout: -1}, map[string]Handler{"block": blocks})
				defer b.finish()
				l := <-hung.sessions
				if welcomed {
					l.welcome(t, 1).assign(t, work{task: 1, typ: "block"})
					for range 5 { // it answers five heartbeats, then it is silent
						l.next(t, "a heartbeat", func(m *dtaskv1.SessionRequest) bool { return m.GetHeartbeat() != 0 })
						begun = time.Now()
					}
				}
				next := <-other.sessions
				if took := time.Since(begun); took > 2500*time.Millisecond {
					t.Errorf("got the end after %v", took)
				}
				if got := len(next.hello.GetHello().GetHeld()); welcomed && got != 1 {
					t.Errorf("got %d held attempts in the next session, want 1", got)
				}
				<-l.gone // the connection was closed
			})
		})
	}
}

func TestHeartbeatsAreSentEverySecondAndKeepASessionForHours(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, nil, func(b *harness, l *leaderEnd) {
		t := b.t
		begun, beats := time.Now(), 0
		for time.Since(begun) < time.Hour {
			l.next(t, "a heartbeat", func(m *dtaskv1.SessionRequest) bool { return m.GetHeartbeat() != 0 })
			beats++
		}
		if beats < 3500 || beats > 3700 {
			t.Errorf("got %d heartbeats in an hour", beats)
		}
		if got := b.worker.Stats().Sessions; got != 1 {
			t.Errorf("got %d sessions, want 1", got)
		}
	})
}

func TestALowerTermHasNoEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		b := start(t, n, Config{Slots: 1, DrainTimeout: -1}, map[string]Handler{"ok": returns})
		defer b.finish()
		l := (<-r.sessions).welcome(t, 5)
		l.send(t, &dtaskv1.SessionResponse{
			Fence:       &dtaskv1.Fence{ClusterId: cluster, Epoch: 1, Term: 4},
			Assignments: assignments(work{task: 1, typ: "ok"}),
		})
		l = <-r.sessions
		if got := l.hello.GetFence(); got.GetTerm() != 5 || got.GetClusterId() != cluster {
			t.Errorf("after a deposed leader: got fence %v, want term 5", got)
		}
		l.welcome(t, 4) // and a new session does not help
		l = <-r.sessions
		l.welcome(t, 6)
		synctest.Wait()
		if got := b.worker.Stats(); got.Received != 0 || got.Sessions != 2 {
			t.Errorf("got stats %+v, want nothing received in two sessions", got)
		}
		if !b.logs.has("leader is deposed") {
			t.Error("missing log message for the deposed leader")
		}
	})
}

func TestAForeignClusterIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		b := start(t, n, Config{Slots: 1, DrainTimeout: -1}, map[string]Handler{"ok": returns})
		defer b.finish()
		l := (<-r.sessions).welcome(t, 5)
		synctest.Wait()
		l.end <- nil
		l = <-r.sessions
		l.send(t, &dtaskv1.SessionResponse{
			Fence: &dtaskv1.Fence{ClusterId: "ffff", Epoch: 9, Term: 9}, Welcome: &dtaskv1.Welcome{},
			Assignments: assignments(work{task: 1, typ: "ok"}),
		})
		l = <-r.sessions
		if got := l.hello.GetFence().GetTerm(); got != 5 {
			t.Errorf("after a foreign cluster: got term %d, want 5", got)
		}
		if got := b.worker.Stats(); got.Received != 0 {
			t.Errorf("got %d accepted attempts from a foreign cluster", got.Received)
		}
		if !b.logs.has("belongs to another cluster") {
			t.Error("missing log message for the foreign cluster")
		}
	})
}

// Addresses of two clusters in --join: while the own cluster has no leader, the
// other one's replicas are tried once and reported once.
func TestCoordinatorsOfAnotherClusterDoNotDelayAReconnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		tries := 0
		follower := n.listen("f1:1", func() error {
			return refused(codes.FailedPrecondition, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER, LeaderAddress: "f2:1"})
		})
		n.listen("f2:1", func() error {
			tries++
			return refused(codes.PermissionDenied, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_REFUSED, ClusterId: "ffff"})
		})
		own := n.listen("n1:1", nil)
		b := start(t, n, Config{Join: []string{"n1:1", "f1:1", "f2:1", "f3:1"}, Slots: 1, DrainTimeout: -1}, nil)
		defer b.finish()
		(<-own.sessions).welcome(t, 5)
		synctest.Wait()
		n.stop("n1:1")
		<-time.After(30 * time.Second)
		if tries != 1 || follower.streams.Load() > 2 {
			t.Errorf("the other cluster's leader was tried %d times, its follower %d times; want once", tries, follower.streams.Load())
		}
		up := time.Now()
		own = n.listen("n1:1", nil)
		<-own.sessions
		if took := time.Since(up); took > 2*maxBackoff {
			t.Errorf("found after %v, want at most %v: two pauses, because one address is unreachable", took, 2*maxBackoff)
		}
		if got := b.logs.count("belongs to another cluster; check --join"); got != 1 || !b.logs.has("coordinator=f2:1 cluster=ffff expected="+cluster) {
			t.Errorf("the other cluster is logged %d times, want once with both ids", got)
		}
	})
}

func TestAMalformedMessageEndsTheSessionAndRunsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		b := start(t, n, Config{Slots: 1, DrainTimeout: -1}, map[string]Handler{"ok": returns})
		defer b.finish()
		l := (<-r.sessions).welcome(t, 1)
		broken := assignments(work{task: 1, typ: "ok"}, work{task: 2, typ: "ok"})
		broken.Policy[1] = 9
		l.send(t, &dtaskv1.SessionResponse{Assignments: broken})
		l = <-r.sessions
		if got := b.worker.Stats().Received; got != 0 || len(l.hello.GetHello().GetHeld()) != 0 {
			t.Errorf("got %d accepted attempts from a malformed message", got)
		}
	})
}

func TestADrainFinishesRunningAttemptsAndReleasesTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		b := start(t, n, Config{Slots: 1, DrainTimeout: time.Minute}, map[string]Handler{"nap": func(context.Context, *Task) ([]byte, error) {
			<-time.After(10 * time.Second)
			return []byte("rested"), nil
		}})
		l := (<-r.sessions).welcome(t, 1)
		l.assign(t, work{task: 1, typ: "nap"}, work{task: 2, typ: "nap"}, work{task: 3, typ: "nap", policy: &dtaskv1.TaskPolicy{Execution: dtaskv1.Execution_EXECUTION_AT_MOST_ONCE}})
		synctest.Wait()
		b.drain()
		l.next(t, "leaving", func(m *dtaskv1.SessionRequest) bool { return m.GetLeaving() })
		l.assign(t, work{task: 4, typ: "nap"}) // was in flight
		synctest.Wait()
		got := map[uint32]dtaskv1.OutcomeKind{}
		for len(l.seen) < 4 {
			l.outcomes(t, 1)
		}
		for _, o := range l.seen {
			got[o.GetAttempt().GetTask()] = o.GetKind()
		}
		released := dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED
		if got[1] != dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED || got[2] != released || got[3] != released || got[4] != released {
			t.Errorf("outcomes = %v", got)
		}
		select {
		case err := <-b.done:
			t.Errorf("got %v from Run before its outcomes were acknowledged", err)
		default:
		}
		l.serveTillEnd(t)
		if err := <-b.done; err != nil {
			t.Errorf("Run = %v", err)
		}
		n.stopAll()
	})
}

func TestADrainStopsAttemptsAfterItsTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		b := start(t, n, Config{Slots: 1, DrainTimeout: 20 * time.Second}, map[string]Handler{"block": blocks})
		l := (<-r.sessions).welcome(t, 1)
		l.assign(t, work{task: 1, typ: "block"})
		synctest.Wait()
		begun := time.Now()
		b.drain()
		if o := l.outcome(t); o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED || time.Since(begun) != 20*time.Second {
			t.Errorf("got outcome %v after %v, want RELEASED after 20 s", o, time.Since(begun))
		}
		l.serveTillEnd(t)
		if err := <-b.done; err != nil {
			t.Errorf("Run = %v", err)
		}
		n.stopAll()
	})
}

func TestAHurriedDrainReleasesImmediately(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		b := start(t, n, Config{Slots: 1, DrainTimeout: time.Hour}, map[string]Handler{"block": blocks})
		l := (<-r.sessions).welcome(t, 1)
		l.assign(t, work{task: 1, typ: "block"})
		synctest.Wait()
		begun := time.Now()
		b.drain()
		l.next(t, "leaving", func(m *dtaskv1.SessionRequest) bool { return m.GetLeaving() })
		b.worker.Hurry()
		b.worker.Hurry()
		if o := l.outcome(t); o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED || time.Since(begun) > time.Second {
			t.Errorf("got outcome %v after %v, want RELEASED immediately", o, time.Since(begun))
		}
		l.serveTillEnd(t)
		if err := <-b.done; err != nil {
			t.Errorf("Run = %v", err)
		}
		n.stopAll()
	})
}

func TestADrainOrderReleasesUnstartedAttempts(t *testing.T) {
	t.Parallel()
	released := dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED
	inBubble(t, Config{Slots: 1}, map[string]Handler{"block": blocks, "ok": returns}, func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t,
			work{task: 1, typ: "block"},
			work{task: 2, typ: "ok"}, // waits for the slot
			work{task: 3, typ: "ok", policy: &dtaskv1.TaskPolicy{Execution: atMostOnce}}, // waits for its grant
		)
		synctest.Wait()
		l.send(t, &dtaskv1.SessionResponse{Drain: &dtaskv1.DrainOrder{Draining: true}, Assignments: assignments(work{task: 4, typ: "ok"})})
		for number, o := range l.outcomes(t, 3) {
			if o.GetKind() != released || o.GetAttempt().GetTask() == 1 {
				t.Errorf("outcome %d: got %v, want released", number, o)
			}
		}
		l.send(t, &dtaskv1.SessionResponse{Stops: []*dtaskv1.Stop{{Attempt: attemptOf(1), Reason: dtaskv1.StopReason_STOP_REASON_DRAINED}}})
		if o := l.outcome(t); o.GetKind() != released || o.GetAttempt().GetTask() != 1 {
			t.Errorf("running attempt: got %v, want released", o)
		}
		l.send(t, &dtaskv1.SessionResponse{Drain: &dtaskv1.DrainOrder{}, Assignments: assignments(work{task: 5, typ: "ok"})})
		if o := l.outcome(t); o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED {
			t.Errorf("after the drain: got %v", o)
		}
	})
}

func TestAWelcomeCanContainADrain(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{Slots: 1}, map[string]Handler{"ok": returns}, func(b *harness, l *leaderEnd) {
		t := b.t
		l.send(t, &dtaskv1.SessionResponse{Drain: &dtaskv1.DrainOrder{Draining: true}})
		l.end <- nil
		next := <-b.nodes["n1:1"].sessions
		next.term = 2
		next.send(t, &dtaskv1.SessionResponse{Heartbeat: 1, Welcome: &dtaskv1.Welcome{WorkerId: 1, HeartbeatIntervalMs: 1000, LeaseMs: 30_000, Draining: true}})
		next.assign(t, work{task: 1, typ: "ok"})
		if o := next.outcome(t); o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED {
			t.Errorf("drained worker: got outcome %v", o)
		}
		next.end <- nil
		third := (<-b.nodes["n1:1"].sessions).welcome(t, 3) // without a drain: it has ended
		third.assign(t, work{task: 2, typ: "ok"})
		third.next(t, "the outcome", func(m *dtaskv1.SessionRequest) bool {
			for _, o := range outcomesIn(m) {
				if o.GetAttempt().GetTask() == 2 && o.GetKind() == dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED {
					return true
				}
			}
			return false
		})
	})
}

func TestADrainWithoutALeaderEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		b := start(t, n, Config{}, nil)
		synctest.Wait()
		b.drain()
		if err := <-b.done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}
