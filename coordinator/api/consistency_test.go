package api

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func (r *replica) get(t *testing.T, id string, c dtaskv1.Consistency) (*dtaskv1.Job, error) {
	t.Helper()
	return r.jobs.GetJob(t.Context(), &dtaskv1.GetJobRequest{Id: id, Consistency: c})
}

const (
	linearizable = dtaskv1.Consistency_CONSISTENCY_LINEARIZABLE
	stale        = dtaskv1.Consistency_CONSISTENCY_STALE
)

func TestALinearizableReadIsConfirmedFirst(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"))
	reads := r.raft.reads
	// The read includes what is acknowledged while it waits for its confirmation.
	r.raft.set(func(f *fakeRaft) {
		f.onRead = func() { r.leader.op(t, &fsm.CancelJob{Job: 1, Reason: "now"}) }
	})
	job, err := r.get(t, "1", dtaskv1.Consistency_CONSISTENCY_UNSPECIFIED)
	if err != nil || job.GetState() != dtaskv1.JobState_JOB_STATE_CANCELLED {
		t.Fatalf("got %v, %v; want a cancelled job", job, err)
	}
	if r.raft.reads != reads+1 {
		t.Errorf("got %d confirmations of leadership, want 1", r.raft.reads-reads)
	}
	if f := job.GetFreshness(); f.GetAppliedIndex() != r.machine.Index() || f.GetLagMs() != 0 || f.GetReplica() != "n1" {
		t.Errorf("got freshness %v", f)
	}
}

func TestADeposedLeaderRejectsLinearizableReads(t *testing.T) {
	t.Parallel()
	for name, depose := range map[string]func(r *replica){
		"the quorum does not confirm the read": func(r *replica) {
			r.raft.set(func(f *fakeRaft) { f.err = errors.New("leadership lost") })
		},
		"the term has ended": func(r *replica) { r.leading(false) },
		"the term changes during the read": func(r *replica) {
			r.raft.set(func(f *fakeRaft) { f.onRead = func() { f.set(func(f *fakeRaft) { f.term = 2 }) } })
		},
		"a later term was won and has not started": func(r *replica) {
			r.raft.set(func(f *fakeRaft) { f.term = 3 })
		},
		"the state knows a later leader": func(r *replica) {
			r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Do(&fsm.StartTerm{Term: 2, ServerID: "n2"}) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			r.submit(t, "x", task("a"))
			depose(r)
			r.raft.set(func(f *fakeRaft) { f.id, f.address, f.state = "n2", "n2:1", "follower" })
			_, err := r.get(t, "1", linearizable)
			wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER)
			_, err = r.get(t, "2", linearizable)
			if status.Code(err) == codes.NotFound {
				t.Error("a deposed leader reports an unknown job")
			}
			if _, err := r.get(t, "1", stale); err != nil {
				t.Errorf("stale read: got %v, want no error", err)
			}
		})
	}
}

func TestAStaleReadReportsItsLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.submit(t, "x", task("a"))
		r.leading(false)
		r.raft.set(func(f *fakeRaft) { f.state, f.contact = "follower", time.Now() })
		time.Sleep(3 * time.Second) // virtual time without contact to the leader
		job, err := r.get(t, "1", stale)
		if err != nil {
			t.Fatal(err)
		}
		if f := job.GetFreshness(); f.GetLagMs() != 3000 || f.GetAppliedIndex() != r.machine.Index() {
			t.Errorf("got freshness %v, want a lag of 3 s", f)
		}
	})
}

func TestAnUnknownConsistencyIsInvalid(t *testing.T) {
	t.Parallel()
	r := setup(t)
	_, err := r.get(t, "1", 9)
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
}

func TestAnInvalidIDIsNotFound(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for _, id := range []string{"", "0", "x", "-1", "+1", "01", "1 ", "1.0", "0x1", "18446744073709551615", "18446744073709551616", "2"} {
		_, err := r.get(t, id, linearizable)
		wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	}
}
