package client

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

type changes = grpc.ServerStreamingServer[dtaskv1.WatchJobResponse]

func at(index uint64, done uint32, tasks ...*dtaskv1.Task) *dtaskv1.WatchJobResponse {
	state := dtaskv1.JobState_JOB_STATE_RUNNING
	if done == 3 {
		state = dtaskv1.JobState_JOB_STATE_COMPLETED
	}
	return &dtaskv1.WatchJobResponse{
		Index: index, Tasks: tasks,
		Job: &dtaskv1.Job{Id: "1", State: state, TasksTotal: 3, TasksCompleted: done, Freshness: &dtaskv1.Freshness{AppliedIndex: index + 1}},
	}
}

func pageOf(tasks ...*dtaskv1.Task) *dtaskv1.WatchJobResponse {
	return &dtaskv1.WatchJobResponse{Tasks: tasks, More: true}
}

func taskAt(i, attempt uint32) *dtaskv1.Task { return &dtaskv1.Task{Index: i, Attempt: attempt} }

func send(s changes, messages ...*dtaskv1.WatchJobResponse) error {
	for _, m := range messages {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return nil
}

var compacted = &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_COMPACTED}

// step is what a caller sees of a change.
type step struct {
	Index uint64
	Done  uint32
	Whole bool
	Tasks [][2]uint32 // index, attempt
}

func stepsOf(t *testing.T, c *Client, o WatchOptions) ([]step, error) {
	t.Helper()
	var steps []step
	for ch, err := range c.Changes(t.Context(), "1", o) {
		if err != nil {
			return steps, err
		}
		s := step{Index: ch.Index, Done: ch.Job.GetTasksCompleted(), Whole: ch.Whole}
		for _, task := range ch.Tasks {
			s.Tasks = append(s.Tasks, [2]uint32{task.GetIndex(), task.GetAttempt()})
		}
		steps = append(steps, s)
	}
	return steps, nil
}

func TestEachChangeIsYieldedOnceAndInOrderDespiteFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1", "b:1"}})
		var froms []uint64
		calls := 0
		serve := func(r *dtaskv1.WatchJobRequest, s changes) error {
			froms = append(froms, r.GetFromIndex())
			calls++
			page := pageOf(taskAt(0, 0), taskAt(1, 0))
			switch calls {
			case 1: // breaks in the middle of the first change
				_ = send(s, page)
				return notLeader("")
			case 2:
				_ = send(s, page, at(5, 0, taskAt(2, 0)), at(0, 0), at(8, 1, taskAt(1, 1)))
				return refusal(codes.Unavailable, "stops", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER})
			case 3: // rebuilt from a snapshot
				return refusal(codes.OutOfRange, "cannot tell", compacted)
			case 4: // everything again: only task 0 is new
				_ = send(s, pageOf(taskAt(0, 1), taskAt(1, 1)), at(11, 2, taskAt(2, 0)))
				return nil // cut
			case 5: // an index that only stands for a snapshot: nothing is new
				_ = send(s, at(12, 2))
				return notLeader("")
			}
			return send(s, at(0, 2), at(15, 3, taskAt(2, 1)))
		}
		for _, addr := range []string{"a:1", "b:1"} {
			n.serve(t, addr, &fake{watchFrom: serve})
		}
		got, err := stepsOf(t, c, WatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := []step{
			{Index: 5, Whole: true, Tasks: [][2]uint32{{0, 0}, {1, 0}, {2, 0}}},
			{Index: 8, Done: 1, Tasks: [][2]uint32{{1, 1}}},
			{Index: 11, Done: 2, Tasks: [][2]uint32{{0, 1}}},
			{Index: 15, Done: 3, Tasks: [][2]uint32{{2, 1}}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]uint64{0, 0, 8, 0, 11, 12}, froms); diff != "" {
			t.Errorf("requested indexes: %s", diff)
		}
	})
}

func TestResumingFromACompactedIndexIsErrCompacted(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	n.serve(t, "a:1", &fake{watchFrom: func(r *dtaskv1.WatchJobRequest, s changes) error {
		if r.GetFromIndex() < 5 {
			return refusal(codes.OutOfRange, "cannot tell", compacted)
		}
		return send(s, at(0, 2), at(9, 3, taskAt(2, 1)))
	}})
	if got, err := stepsOf(t, c, WatchOptions{From: 4}); !errors.Is(err, ErrCompacted) || len(got) > 0 {
		t.Errorf("got %v, %v; want %v", got, err, ErrCompacted)
	}
	got, err := stepsOf(t, c, WatchOptions{From: 5})
	if diff := cmp.Diff([]step{{Index: 9, Done: 3, Tasks: [][2]uint32{{2, 1}}}}, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestWatchEndsWhenItsCallerStops(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	n.serve(t, "a:1", &fake{watchFrom: func(_ *dtaskv1.WatchJobRequest, s changes) error {
		_ = send(s, at(5, 0, taskAt(0, 0)))
		<-s.Context().Done()
		return nil
	}})
	for ch, err := range c.Changes(t.Context(), "1", WatchOptions{}) {
		if err != nil || ch.Index != 5 {
			t.Errorf("got %v, %v", ch, err)
		}
		break
	}
}

func TestWatchSubmittedStartsWithoutAQuorumRead(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	n.serve(t, "a:1", &fake{watchFrom: func(r *dtaskv1.WatchJobRequest, s changes) error {
		fresh := r.GetConsistency() != dtaskv1.Consistency_CONSISTENCY_STALE
		if known := r.GetId() == "1"; known == fresh || known != (r.GetFromIndex() == 7) {
			t.Errorf("got request %v", r)
		}
		return s.Send(&dtaskv1.WatchJobResponse{Job: &dtaskv1.Job{Id: r.GetId(), State: dtaskv1.JobState_JOB_STATE_COMPLETED}})
	}})
	for _, s := range []Submitted{{ID: "1", Index: 7}, {ID: "2", Existed: true}} {
		seen := 0
		for job, err := range c.WatchSubmitted(t.Context(), s) {
			if seen++; err != nil || job.GetId() != s.ID {
				t.Errorf("got %v, %v", job, err)
			}
		}
		if seen != 1 {
			t.Errorf("job %s: got %d changes", s.ID, seen)
		}
	}
}
