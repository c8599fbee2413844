package api

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// seenJob is a message of a watch and when it arrived.
type seenJob struct {
	at  time.Duration // since the watch started
	job *dtaskv1.Job
}

type watching struct {
	stream grpc.ServerStreamingClient[dtaskv1.WatchJobResponse]
	start  time.Time
}

func (r *replica) watch(ctx context.Context, t *testing.T, id string) *watching {
	t.Helper()
	stream, err := r.jobs.WatchJob(ctx, &dtaskv1.WatchJobRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	return &watching{stream: stream, start: time.Now()}
}

func (w *watching) next(t *testing.T) seenJob {
	t.Helper()
	got, err := w.stream.Recv()
	if err != nil {
		t.Fatalf("after %s: %v", time.Since(w.start), err)
	}
	return seenJob{time.Since(w.start), got.GetJob()}
}

func TestAWatchSendsTheJobImmediatelyAndEndsWithIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.submit(t, "x", task("a"))
		w := r.watch(t.Context(), t, "1")
		if got := w.next(t); got.at != 0 || got.job.GetState() != dtaskv1.JobState_JOB_STATE_PENDING {
			t.Errorf("got %v after %s, want a pending job immediately", got.job, got.at)
		}
		time.Sleep(300 * time.Millisecond)
		r.complete(t, held(1, 0, 1, r.worker(t)), "")
		if got := w.next(t); got.at != 300*time.Millisecond || got.job.GetState() != dtaskv1.JobState_JOB_STATE_COMPLETED {
			t.Errorf("got %v after %s, want a completed job immediately", got.job.GetState(), got.at)
		}
		if _, err := w.stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want the end", err)
		}
	})
}

func TestAWatchOfAFinishedJobEndsImmediately(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"))
	r.leader.op(t, &fsm.CancelJob{Job: 1, Reason: "r"})
	w := r.watch(t.Context(), t, "1")
	w.next(t)
	if _, err := w.stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end", err)
	}
}

func TestManyChangesAreCoalesced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.submit(t, "x", task("a"))
		w := r.worker(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		watch := r.watch(ctx, t, "1")
		go func() { // a change every millisecond, for a second
			for attempt := uint32(1); attempt <= 500; attempt++ {
				time.Sleep(time.Millisecond)
				r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Assign(fsm.AssignItem(held(1, 0, attempt, w))) })
				time.Sleep(time.Millisecond)
				r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Requeue(held(1, 0, attempt, w), false) })
			}
		}()
		messages, last := 0, watch.next(t)
		for last.at < time.Second {
			got := watch.next(t)
			if got.at-last.at < watchInterval {
				t.Errorf("got a message %s after the previous one", got.at-last.at)
			}
			last = got
			messages++
		}
		if messages < 8 || messages > 10 {
			t.Errorf("got %d messages in a second, want about 10", messages)
		}
	})
}

func TestTheEndOfAJobIsSentTheMomentItEnds(t *testing.T) {
	t.Parallel()
	for _, withTasks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := setup(t)
			r.submit(t, "x", task("a"), task("b", 0))
			worker := r.worker(t)
			stream, err := r.jobs.WatchJob(t.Context(), &dtaskv1.WatchJobRequest{Id: "1", WithTasks: withTasks})
			if err != nil {
				t.Fatal(err)
			}
			w := &watching{stream: stream, start: time.Now()}
			w.next(t)
			time.Sleep(10 * time.Millisecond) // less than watchInterval
			r.complete(t, held(1, 0, 1, worker), "")
			time.Sleep(10 * time.Millisecond)
			r.complete(t, held(1, 1, 1, worker), "")
			if got := w.next(t); got.at != 20*time.Millisecond || got.job.GetState() != dtaskv1.JobState_JOB_STATE_COMPLETED {
				t.Errorf("with tasks = %t: got a %v job after %s, want a completed one after 20 ms", withTasks, got.job.GetState(), got.at)
			}
			if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
				t.Errorf("got %v, want the end", err)
			}
		})
	}
}

func TestAWatchRepeatsTheJobWhenNothingChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.submit(t, "x", task("a"))
		r.submit(t, "other", task("a"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		watch := r.watch(ctx, t, "1")
		watch.next(t)
		w := r.worker(t)
		go func() { // other jobs change continuously
			for attempt := uint32(1); attempt <= 300; attempt++ {
				time.Sleep(10 * time.Millisecond)
				r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Assign(fsm.AssignItem(held(2, 0, attempt, w))) })
				r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Requeue(held(2, 0, attempt, w), false) })
			}
		}()
		last := time.Duration(0)
		for range 5 {
			got := watch.next(t)
			if d := got.at - last; d < 900*time.Millisecond || d > watchRepeatInterval {
				t.Errorf("got a repeat after %s, want 1 s", d)
			}
			last = got.at
		}
	})
}

func TestAWatchSurvivesAChangeOfLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.submit(t, "x", task("a"))
		w := r.watch(t.Context(), t, "1")
		w.next(t)
		r.leading(false)
		r.raft.set(func(f *fakeRaft) { f.id, f.address, f.state, f.contact = "n2", "n2:1", "follower", time.Now() })
		time.Sleep(watchInterval)
		r.leader.op(t, &fsm.CancelJob{Job: 1, Reason: "at the new leader"}) // as this replica applies it
		if got := w.next(t); got.job.GetState() != dtaskv1.JobState_JOB_STATE_CANCELLED {
			t.Errorf("got %v", got.job)
		}
		if _, err := w.stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want the end", err)
		}
	})
}

func TestAWatchOfAnUnknownJobIsNotFound(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for _, id := range []string{"7", "x"} {
		_, err := r.watch(t.Context(), t, id).stream.Recv()
		wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	}
}

func TestAServerThatStopsEndsItsStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.submit(t, "x", task("a"))
		r.assign(t, held(1, 0, 1, r.worker(t)))
		r.logs.hang = true
		w := r.watch(t.Context(), t, "1")
		w.next(t)
		logs, err := r.jobs.Logs(t.Context(), &dtaskv1.LogsRequest{Job: "1", Task: "a", Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := logs.Recv(); err != nil {
			t.Fatal(err)
		}
		r.raft.set(func(f *fakeRaft) { f.id, f.address = "", "" })
		r.shutDown()
		_, err = w.stream.Recv()
		wantError(t, err, codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER)
		_, err = logs.Recv()
		wantError(t, err, codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER)
	})
}
