package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// heartbeat waits for the worker's next heartbeat.
func (l *leaderEnd) heartbeat(t *testing.T) *dtaskv1.SessionRequest {
	t.Helper()
	return l.next(t, "a heartbeat", func(m *dtaskv1.SessionRequest) bool { return m.GetHeartbeat() != 0 })
}

// Its own timeout would be eight times as long.
func TestASilentLeaderIsLeftForItsSuccessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		silent, follower, next := n.listen("n1:1", nil), n.listen("n2:1", nil), n.listen("n3:1", nil)
		b := start(t, n, Config{Join: []string{"n1:1", "n2:1"}, Slots: 1, DrainTimeout: -1}, map[string]Handler{"block": blocks})
		defer b.finish()
		l := (<-silent.sessions).welcome(t, 1)
		l.assign(t, work{task: 1, typ: "block"})
		l.heartbeat(t)
		l.heartbeat(t) // the next one is not answered
		begun := time.Now()
		follower.leader.Store(&dtaskv1.AwaitLeaderResponse{LeaderId: "n3", LeaderAddress: "n3:1", Term: 2})
		m := <-next.sessions
		if took := time.Since(begun); took > defaultInterval+livenessTimeout/4 {
			t.Errorf("the successor got the session after %v", took)
		}
		if held := len(m.hello.GetHello().GetHeld()); held != 1 {
			t.Errorf("the session has %d attempts, want 1", held)
		}
		<-l.gone
	})
}

func TestASlowLeaderWithoutASuccessorKeepsItsWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		slow, follower := n.listen("n1:1", nil), n.listen("n2:1", nil)
		b := start(t, n, Config{Join: []string{"n1:1", "n2:1"}, Slots: 1, DrainTimeout: -1}, map[string]Handler{"ok": returns})
		defer b.finish()
		l := (<-slow.sessions).welcome(t, 5)
		// The follower still names an earlier leader.
		follower.leader.Store(&dtaskv1.AwaitLeaderResponse{LeaderId: "n3", LeaderAddress: "n3:1", Term: 5})
		for range 20 {
			m := l.heartbeat(t)
			time.Sleep(livenessTimeout * 3 / 4) // virtual
			l.send(t, &dtaskv1.SessionResponse{Heartbeat: m.GetHeartbeat()})
		}
		if got := b.worker.Stats().Sessions; got != 1 {
			t.Errorf("got %d sessions, want 1", got)
		}
		if asked := follower.asked.Load(); asked == 0 || asked > 20*30 {
			t.Errorf("the follower was asked %d times", asked)
		}
	})
}

// Coordinators that are down, or don't know the question, cost nothing but time.
func TestASuccessorIsFoundThoughOthersDoNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		silent, next := n.listen("n1:1", nil), n.listen("n4:1", nil)
		next.leader.Store(&dtaskv1.AwaitLeaderResponse{LeaderId: "n4", LeaderAddress: "n4:1", Term: 2})
		b := start(t, n, Config{Join: []string{"n1:1", "n2:1", "n3:1", "n4:1"}, Slots: 1, DrainTimeout: -1}, map[string]Handler{"ok": returns})
		defer b.finish()
		l := (<-silent.sessions).welcome(t, 1)
		l.heartbeat(t)
		l.heartbeat(t) // the next one is not answered
		begun := time.Now()
		<-next.sessions
		if took := time.Since(begun); took > defaultInterval+livenessTimeout/2 {
			t.Errorf("the successor got the session after %v", took)
		}
	})
}

// listenAsFollower starts a replica that only names the leader, once it knows one.
func (n *network) listenAsFollower(addr string) *node {
	var r *node
	known := make(chan struct{})
	r = n.listen(addr, func() error {
		<-known
		return refused(codes.FailedPrecondition, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER, LeaderAddress: r.leader.Load().GetLeaderAddress()})
	})
	close(known)
	return r
}

// A worker pauses for up to two seconds between its tries. One that then reached a replica that
// hung came back after the next leader had marked it down. The replica may have led meanwhile.
func TestAReplicaThatHangsDoesNotDelayALateWorker(t *testing.T) {
	t.Parallel()
	for name, led := range map[string]bool{"a follower": false, "a leader": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { leavesWhatHangs(t, led) })
		})
	}
}

func leavesWhatHangs(t *testing.T, led bool) {
	t.Helper()
	n := newNetwork(t)
	first, hangs, follower, next := n.listen("n1:1", nil), n.listen("n2:1", nil), n.listenAsFollower("n3:1"), n.listen("n4:1", nil)
	b := start(t, n, Config{Join: []string{"n1:1", "n2:1", "n3:1"}, Slots: 1, DrainTimeout: -1}, map[string]Handler{"ok": returns})
	defer b.finish()
	l := (<-first.sessions).welcome(t, 1)
	l.heartbeat(t)
	n.stop("n1:1")
	for range 2 * lateFailures {
		<-hangs.sessions
	}
	if led {
		follower.leader.Store(&dtaskv1.AwaitLeaderResponse{LeaderId: "n2", LeaderAddress: "n2:1", Term: 2})
		time.Sleep(livenessTimeout / 2) // virtual
	}
	begun := time.Now()
	follower.leader.Store(&dtaskv1.AwaitLeaderResponse{LeaderId: "n4", LeaderAddress: "n4:1", Term: 3})
	<-next.sessions
	if took := time.Since(begun); took >= livenessTimeout/2 {
		t.Errorf("the leader got the session after %v", took)
	}
}

func TestALateWorkerWaitsForALeaderThatIsSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		first, slow, follower := n.listen("n1:1", nil), n.listen("n2:1", nil), n.listenAsFollower("n3:1")
		b := start(t, n, Config{Join: []string{"n1:1", "n2:1", "n3:1"}, Slots: 1, DrainTimeout: -1}, map[string]Handler{"ok": returns})
		defer b.finish()
		l := (<-first.sessions).welcome(t, 1)
		l.heartbeat(t)
		n.stop("n1:1")
		for range 2 * lateFailures {
			<-slow.sessions
		}
		l = <-slow.sessions
		follower.leader.Store(&dtaskv1.AwaitLeaderResponse{LeaderId: "n2", LeaderAddress: "n2:1", Term: 2})
		time.Sleep(livenessTimeout * 3 / 4) // virtual
		l.welcome(t, 2).heartbeat(t)
		if got := follower.asked.Load(); got == 0 {
			t.Error("no other coordinator was asked for the leader")
		}
		if got := len(slow.sessions); got != 0 {
			t.Errorf("the leader got %d more sessions", got)
		}
	})
}

// An answer of another coordinator may have arrived just before the welcome.
func TestAWelcomedWorkerLeavesOnlyForALaterLeader(t *testing.T) {
	t.Parallel()
	w := &Worker{}
	if err := w.fence.admit(&dtaskv1.Fence{Epoch: 1, Term: 5}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		welcomed bool
		term     uint64
		want     bool
	}{{false, 4, true}, {false, 6, true}, {true, 4, false}, {true, 5, false}, {true, 6, true}} {
		s := &session{w: w, welcomed: c.welcomed}
		if got := s.isSucceeded(&successorError{term: c.term}); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}
