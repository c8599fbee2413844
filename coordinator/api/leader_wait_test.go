package api

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// leaderlessSetup is a follower with a job that knows no leader and whose calls wait
// long.
func leaderlessSetup(t *testing.T) *replica {
	t.Helper()
	r := setup(t, func(c *Config) { c.LeaderWait = time.Hour })
	r.submit(t, "x", task("a"))
	r.leading(false)
	r.raft.set(func(f *fakeRaft) { f.id, f.address, f.state, f.asked = "", "", "follower", make(chan struct{}) })
	return r
}

// awaitHeld returns when a call waits.
func (r *replica) awaitHeld() {
	for range 3 { // the call fails and polls for a leader
		<-r.raft.asked
	}
}

func TestACallWaitsWhileNoLeaderIsKnown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		elect  func(r *replica)
		code   codes.Code
		reason dtaskv1.ErrorReason
	}{
		"until this replica leads": {elect: func(r *replica) {
			r.raft.set(func(f *fakeRaft) { f.id, f.address, f.state = "n1", "n1:1", "leader" })
			r.leading(true)
		}},
		"until its term has started": {elect: func(r *replica) {
			r.raft.set(func(f *fakeRaft) { f.id, f.address, f.state, f.term = "n1", "n1:1", "leader", 2 })
			r.leading(true)
			r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Do(&fsm.StartTerm{Term: 2, ServerID: "n1"}) })
		}},
		"until another leads": {
			func(r *replica) { r.raft.set(func(f *fakeRaft) { f.id, f.address = "n2", "n2:1" }) },
			codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := leaderlessSetup(t)
			answered := make(chan error, 1)
			go func() {
				_, err := r.jobs.GetJob(t.Context(), &dtaskv1.GetJobRequest{Id: "1"})
				answered <- err
			}()
			r.awaitHeld()
			c.elect(r)
			switch err := <-answered; {
			case c.code != codes.OK:
				wantError(t, err, c.code, c.reason)
			case err != nil:
				t.Error(err)
			}
		})
	}
}

func TestACallThatNeedsNoLeaderDoesNotWait(t *testing.T) {
	t.Parallel()
	r := leaderlessSetup(t)
	if _, err := r.get(t, "1", stale); err != nil {
		t.Error(err)
	}
	_, err := r.admin.ListWorkers(t.Context(), &dtaskv1.ListWorkersRequest{})
	wantError(t, err, codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER)
}

func TestAWaitForALeaderEndsWithItsCall(t *testing.T) {
	t.Parallel()
	r := leaderlessSetup(t)
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() { answered <- r.awaitEnd(ctx) }()
	r.awaitHeld()
	cancel()
	if err := <-answered; err == nil {
		t.Error("got no error")
	}
	if !r.leaderWaits.TryAcquire(maxLeaderWaits) {
		t.Error("the call is still waiting")
	}
}

// awaitEnd makes a call without a client and returns when the server has finished it.
func (r *replica) awaitEnd(ctx context.Context) error {
	if r.awaitLeader(ctx, methods[dtaskv1.JobService_GetJob_FullMethodName], errNotLeader) {
		return nil
	}
	return errNotLeader
}
