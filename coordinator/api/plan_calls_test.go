package api

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// The tests in this file are about which replica makes a plan, and when.

func TestWhichWorkersFitIsAnsweredBesidePlans(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.worker(t)
	if err := r.plans.Acquire(t.Context(), maxPlans); err != nil {
		t.Fatal(err)
	}
	h := header("x")
	h.GetPolicies()[0].Resources = map[string]int64{"gpu": 1000}
	q := planRequest(t, h, task("a"))
	q.FitOnly = true
	p, err := r.jobs.Plan(t.Context(), q)
	if err != nil || len(p.GetClasses()) != 1 || p.GetClasses()[0].GetReason() != "no worker that is up has 1 gpu" || p.GetWorkers() != 1 || len(p.GetHighMs()) != 0 {
		t.Errorf("got %v, %v", p, err)
	}
	q.Tasks = slices.Repeat(q.GetTasks(), maxFitTasks+1)
	_, err = r.jobs.Plan(t.Context(), q)
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
}

// Each call that waits holds its request.
func TestFewPlansWait(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.worker(t)
	if !r.planQueue.TryAcquire(maxPlanCalls) {
		t.Fatal("the queue is not empty")
	}
	_, err := r.jobs.Plan(t.Context(), planRequest(t, header("x"), task("a")))
	wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
	r.planQueue.Release(maxPlanCalls)
	r.plan(t.Context(), t, header("x"), task("a"))
}

// A follower that gets no barrier answers only if the caller accepts a stale state.
func TestAnyReplicaPlansFromAStaleState(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.worker(t)
	r.leading(false)
	r.raft.set(func(f *fakeRaft) { f.state, f.id, f.address, f.err = "follower", "n2", "n2:1", errNotLeader })
	q := planRequest(t, header("x"), task("a"))
	_, err := r.jobs.Plan(t.Context(), proto.CloneOf(q))
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER)
	q.Consistency = dtaskv1.Consistency_CONSISTENCY_STALE
	if p, err := r.jobs.Plan(t.Context(), q); err != nil || p.GetWorkers() != 1 || p.GetFreshness().GetReplica() != "n1" {
		t.Errorf("got %v, %v", p, err)
	}
}

func TestAFollowerPlansWithAllThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var acknowledged atomic.Uint64
		r := setup(t, withBackups(func() (uint64, error) { return acknowledged.Load(), nil }))
		r.worker(t)
		before := r.machine.Index()
		acknowledged.Store(before + 1)
		r.leading(false)
		r.raft.set(func(f *fakeRaft) { f.id, f.address, f.state = "n2", "n2:1", "follower" })
		request := planRequest(t, expecting("x", 1000), task("a"))
		planned := make(chan *dtaskv1.PlanResponse, 1)
		go func() {
			p, err := r.jobs.Plan(t.Context(), request)
			if err != nil {
				t.Error(err)
			}
			planned <- p
		}()
		synctest.Wait()
		if len(planned) > 0 {
			t.Fatal("it did not wait for the entry that was acknowledged")
		}
		r.advance(t)
		if p := <-planned; p.GetFreshness().GetAppliedIndex() <= before {
			t.Errorf("got a plan at index %d, want one after %d", p.GetFreshness().GetAppliedIndex(), before)
		}
		// One that is far behind leaves it to others.
		acknowledged.Store(before + 1000)
		_, err := r.jobs.Plan(t.Context(), request)
		wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER)
	})
}

// A plan takes a processor for up to a second: others wait for it.
func TestOnePlanIsMadeAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.worker(t)
		if err := r.plans.Acquire(t.Context(), maxPlans); err != nil {
			t.Fatal(err)
		}
		var answered sync.WaitGroup
		done := make(chan struct{})
		answered.Go(func() {
			if _, err := r.jobs.Plan(t.Context(), planRequest(t, header("x"), task("a"))); err != nil {
				t.Error(err)
			}
			close(done)
		})
		synctest.Wait()
		select {
		case <-done:
			t.Error("a plan was made beside another one")
		default:
		}
		r.plans.Release(maxPlans)
		answered.Wait()
	})
}

// A plan that was not begun is not one that takes too long.
func TestAPlanThatWaitsForOthersInVainIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.worker(t)
		if err := r.plans.Acquire(t.Context(), maxPlans); err != nil {
			t.Fatal(err)
		}
		_, err := r.jobs.Plan(t.Context(), planRequest(t, header("x"), task("a")))
		wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
	})
}

func TestAPacerRestsAsLongAsItHasWorked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for worked, want := range map[time.Duration]time.Duration{
			0: 0, workSlice - 1: 0, workSlice: workSlice, 5 * workSlice: 5 * workSlice, time.Hour: 10 * workSlice,
		} {
			began := time.Now()
			p := pacer{began: began.Add(-worked)}
			p.rest()
			if got := time.Since(began); got != want {
				t.Errorf("after %v of work: rested %v, want %v", worked, got, want)
			}
		}
	})
}
