package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// startTimes is a handler that records when each task started.
type startTimes chan map[uint32]time.Time

func newStartTimes() startTimes {
	s := make(startTimes, 1)
	s <- map[uint32]time.Time{}
	return s
}

func (s startTimes) note(t *Task) {
	m := <-s
	m[t.Index] = time.Now()
	s <- m
}

func (s startTimes) of(task uint32) (at time.Time, started bool) {
	m := <-s
	at, started = m[task]
	s <- m
	return at, started
}

// handlers are a task that ends at once, and one that takes three seconds.
func (s startTimes) handlers() map[string]Handler {
	return map[string]Handler{
		"ok": func(_ context.Context, t *Task) ([]byte, error) { s.note(t); return nil, nil },
		"slow": func(_ context.Context, t *Task) ([]byte, error) {
			s.note(t)
			<-time.After(3 * time.Second)
			return nil, nil
		},
	}
}

// keepOpen sends the worker messages that keep its session open and answer no
// heartbeat.
func (l *leaderEnd) keepOpen(t *testing.T, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		<-time.After(100 * time.Millisecond)
		l.send(t, &dtaskv1.SessionResponse{Ack: &dtaskv1.Ack{}})
	}
}

// A worker that was stopped for ten seconds held an attempt in its queue. Its
// leader had marked it down and given the task to another worker, where it
// completed; the attempt then began here, too.
func TestAnAttemptOfAWorkerThatLostItsLeaderDoesNotStart(t *testing.T) {
	t.Parallel()
	starts := newStartTimes()
	inBubble(t, Config{Slots: 1}, starts.handlers(), func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t, work{task: 1, typ: "slow"}, work{task: 2, typ: "ok"}, work{task: 3, typ: "ok"})
		<-time.After(10 * time.Second) // the leader is silent
		if _, started := starts.of(2); started {
			t.Error("task 2 started although no leader had answered for more than two seconds")
		}
		var next *leaderEnd
		for next == nil || len(b.nodes["n1:1"].sessions) > 0 { // the last one; the others have timed out
			next = <-b.nodes["n1:1"].sessions
		}
		if held := next.hello.GetHello().GetHeld(); len(held) != 2 {
			t.Errorf("held = %v, want tasks 2 and 3", held)
		}
		next.term = 2
		next.send(t, &dtaskv1.SessionResponse{
			Heartbeat: 1, Welcome: &dtaskv1.Welcome{WorkerId: 1, HeartbeatIntervalMs: 1000, LivenessTimeoutMs: 3000, LeaseMs: 30_000},
			Stops: []*dtaskv1.Stop{{Attempt: attemptOf(2), Reason: dtaskv1.StopReason_STOP_REASON_SUPERSEDED}},
		})
		confirmed := time.Now()
		synctest.Wait()
		if _, started := starts.of(2); started {
			t.Error("the superseded attempt started")
		}
		if at, started := starts.of(3); !started || !at.Equal(confirmed) {
			t.Errorf("task 3 started = %t at %v, want at once when the leader confirmed it (%v)", started, at, confirmed)
		}
	})
}

func TestAnAssignmentDoesNotConfirmItself(t *testing.T) {
	t.Parallel()
	starts := newStartTimes()
	inBubble(t, Config{Slots: 2}, starts.handlers(), func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t, work{task: 1, typ: "ok"})
		synctest.Wait()
		if _, started := starts.of(1); !started {
			t.Error("task 1 did not start with a fresh confirmation")
		}
		// The assignment may have waited for any time in the sockets.
		l.keepOpen(t, 2*time.Second)
		l.assign(t, work{task: 2, typ: "ok"})
		synctest.Wait()
		if _, started := starts.of(2); started {
			t.Error("task 2 started on a confirmation that was two seconds old")
		}
		if running, _ := b.worker.attempts.counts(); running != 0 {
			t.Error("task 2 occupies a slot while it waits, and cannot be stolen")
		}
		l.next(t, "a heartbeat", func(m *dtaskv1.SessionRequest) bool { return m.GetHeartbeat() == 3 })
		synctest.Wait()
		if _, started := starts.of(2); !started {
			t.Error("task 2 did not start after a fresh confirmation")
		}
	})
}

func TestALateAnswerConfirmsOnlyTheTimeOfItsHeartbeat(t *testing.T) {
	t.Parallel()
	starts := newStartTimes()
	inBubble(t, Config{Slots: 1}, starts.handlers(), func(b *harness, l *leaderEnd) {
		t := b.t
		l.keepOpen(t, 3500*time.Millisecond)
		l.assign(t, work{task: 1, typ: "ok"})
		l.send(t, &dtaskv1.SessionResponse{Heartbeat: 2}) // sent 2.5 s ago
		synctest.Wait()
		if _, started := starts.of(1); started {
			t.Error("a late answer counted from its arrival")
		}
		l.send(t, &dtaskv1.SessionResponse{Heartbeat: 3}) // sent 1.5 s ago
		synctest.Wait()
		if _, started := starts.of(1); !started {
			t.Error("task 1 did not start on a confirmation 1.5 s old")
		}
	})
}

// A worker that was paused asks for a confirmation at once, and doesn't wait
// for the next regular heartbeat.
func TestAStartThatWaitsSendsAHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		starts := newStartTimes()
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		b := start(t, n, Config{Slots: 1, DrainTimeout: -1}, starts.handlers())
		defer b.finish()
		l := <-r.sessions
		l.term = 1
		l.send(t, &dtaskv1.SessionResponse{Welcome: &dtaskv1.Welcome{WorkerId: 1, HeartbeatIntervalMs: 60_000, LivenessTimeoutMs: 3000}})
		<-time.After(10 * time.Second)
		sent := time.Now()
		l.assign(t, work{task: 1, typ: "ok"})
		l.outcome(t) // answers the heartbeat
		if at, started := starts.of(1); !started || !at.Equal(sent) {
			t.Errorf("started = %t at %v, want at once (%v)", started, at, sent)
		}
	})
}

// An attempt waits immediately before its start, too: its preparation may have
// taken any time.
func TestAnAttemptThatWasPreparedForTooLongWaitsForAConfirmation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(t *attemptTable, a *attempt)
		runs bool
		kind dtaskv1.OutcomeKind
	}{
		"confirmed": {func(t *attemptTable, _ *attempt) { t.confirm(time.Now(), defaultFreshness) }, true, dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED},
		"stopped":   {func(t *attemptTable, a *attempt) { t.stop(a.ref, ErrSuperseded) }, false, dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED},
		"timed out": {func(*attemptTable, *attempt) { <-time.After(time.Minute) }, false, dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				starts := newStartTimes()
				w := &Worker{attempts: newAttemptTable(1), handlers: starts.handlers()}
				table := w.attempts
				table.base, table.run = t.Context(), func() {}
				defer table.close()
				table.confirm(time.Now(), defaultFreshness)
				policy := &dtaskv1.TaskPolicy{TimeoutMs: 60_000}
				if err := table.accept(assignments(work{task: 1, typ: "ok", policy: policy}), 1); err != nil {
					t.Fatal(err)
				}
				a := table.next(nil, nil)
				<-time.After(defaultFreshness) // the preparation
				done := make(chan struct{})
				go func() {
					defer close(done)
					table.next(a, w.execute(a, new(slot)))
				}()
				synctest.Wait()
				if _, started := starts.of(1); started {
					t.Error("the attempt started on an old confirmation")
				}
				c.end(table, a)
				<-done
				if _, started := starts.of(1); started != c.runs {
					t.Errorf("started = %t, want %t", started, c.runs)
				}
				for _, o := range outcomesIn(&dtaskv1.SessionRequest{Reports: table.take(false)}) {
					if o.GetKind() != c.kind {
						t.Errorf("outcome = %v, want %v", o, c.kind)
					}
				}
			})
		})
	}
}

func TestAStartNeedsBothClocksToBeFresh(t *testing.T) {
	t.Parallel()
	sent := time.Now()
	wall := sent.Round(0) // without the monotonic reading
	c := newConfirmations()
	if c.fresh(sent) {
		t.Error("fresh before the first confirmation")
	}
	c.renew(sent, defaultFreshness)
	for _, x := range []struct {
		name string
		at   time.Time
		want bool
	}{
		{"both clocks", sent.Add(defaultFreshness - 1), true},
		{"monotonic clock expired", sent.Add(defaultFreshness), false},
		{"wall clock expired", wall.Add(defaultFreshness), false},
		{"wall clock set back", wall.Add(-time.Hour), true},
	} {
		if got := c.fresh(x.at); got != x.want {
			t.Errorf("%s: fresh = %t, want %t", x.name, got, x.want)
		}
	}
	c.renew(sent.Add(-time.Second), time.Hour)
	if c.fresh(sent.Add(defaultFreshness)) {
		t.Error("an earlier heartbeat replaced a later one")
	}
	if got := freshnessFor(3 * time.Second); got != 2*time.Second {
		t.Errorf("freshness for 3 s = %v, want 2 s", got)
	}
	if got := freshnessFor(0); got != defaultFreshness {
		t.Errorf("freshness for no liveness timeout = %v, want %v", got, defaultFreshness)
	}
}
