package api

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// startOnce stores job 1 of two arrays and two tasks, all at-most-once, and starts task
// a, a task of the array small and two of large. Further tasks of large are assigned, and
// one of these is observed to run by the leader. It returns when task a started.
func (r *replica) startOnce(t *testing.T) (startedMS int64) {
	t.Helper()
	h := header("x")
	h.Policies[0].Execution = dtaskv1.Execution_EXECUTION_AT_MOST_ONCE
	req := request("k", h, task("a"), ranged("small", 5), ranged("large", 1), task("z"))
	req.Total = 14
	if _, err := r.send(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	w := r.worker(t)
	for _, i := range []uint32{0, 1, 2, 3, 4, 5, 6, 13} {
		r.assign(t, held(1, i, 1, w))
	}
	for _, i := range []uint32{0, 2, 4, 5} {
		r.leader.op(t, &fsm.RecordStart{Items: []fsm.HeldAttempt{held(1, i, 1, w)}})
	}
	r.leader.observed = map[fsm.JobID]map[uint32]sequencer.Observation{1: {3: {Attempt: 1, StartedMS: 77}}}
	return r.taskOf(0).StartedMS
}

// taskOf returns a task of job 1 as it is stored.
func (r *replica) taskOf(i uint32) (v fsm.Task) {
	r.machine.Read(func(st *fsm.State, _ uint64) { v, _ = st.Task(fsm.TaskRef{Job: 1, Index: i}) })
	return v
}

// wantCounts compares the counts of tasks of the job that startOnce stores.
func wantCounts(t *testing.T, where string, job *dtaskv1.Job, running, assigned uint32) {
	t.Helper()
	if got, want := job.GetTasksByState(), map[string]uint32{"running": running, "assigned": assigned, "pending": 6}; !maps.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", where, got, want)
	}
}

// The leader has no report of their workers, as after a change of leader, but for one
// task; a follower has none.
func TestATaskRunsIfItsStartIsInTheLog(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		leads             bool
		running           []string
		assigned          uint32
		runsOfLarge       uint32
		waitsOfLarge      uint32
		firstUnstartedRun int64 // when large[1] started, which only the leader knows
	}{
		"leader":   {true, []string{"a", "small[6-10]", "large[1]", "large[2]", "large[3]"}, 3, 3, 1, 77},
		"follower": {false, []string{"a", "small[6-10]", "large[2]", "large[3]"}, 4, 2, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			started := r.startOnce(t)
			r.leading(x.leads)
			running := uint32(len(x.running))

			states := []dtaskv1.TaskState{dtaskv1.TaskState_TASK_STATE_RUNNING}
			if got := r.named(t, &dtaskv1.ListTasksRequest{States: states, Consistency: stale}); !slices.Equal(got, x.running) {
				t.Errorf("by state: got %v, want %v", got, x.running)
			}
			brief := slices.Concat(x.running, []string{"z"})
			if got := r.named(t, &dtaskv1.ListTasksRequest{Brief: true, Consistency: stale}); !slices.Equal(got, brief) {
				t.Errorf("brief: got %v, want %v", got, brief)
			}
			pages, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1", WithJob: true, Consistency: stale})
			if err != nil || len(pages) != 1 {
				t.Fatalf("got %d pages, %v", len(pages), err)
			}
			for i, want := range map[int]int64{0: started, 3: x.firstUnstartedRun, 6: 0} {
				if got := pages[0].GetTasks()[i]; got.GetStartedAt() != want {
					t.Errorf("task %s started at %d, want %d", got.GetId(), got.GetStartedAt(), want)
				}
			}
			wantCounts(t, "listing", pages[0].GetJob(), running, x.assigned)
			arrays := pages[0].GetJob().GetArrays()
			if got, want := arrays[0].GetTasksByState(), map[string]uint32{"running": 1, "assigned": 1}; !maps.Equal(got, want) {
				t.Errorf("small: got %v, want %v", got, want)
			}
			if got, want := arrays[1].GetTasksByState(), map[string]uint32{"running": x.runsOfLarge, "assigned": x.waitsOfLarge, "pending": 6}; !maps.Equal(got, want) {
				t.Errorf("large: got %v, want %v", got, want)
			}

			job, err := r.get(t, "1", stale)
			if err != nil {
				t.Fatal(err)
			}
			wantCounts(t, "job", job, running, x.assigned)
			list, err := r.jobs.ListJobs(t.Context(), &dtaskv1.ListJobsRequest{Consistency: stale})
			if err != nil || len(list.GetJobs()) != 1 {
				t.Fatalf("got %v, %v", list, err)
			}
			wantCounts(t, "list of jobs", list.GetJobs()[0], running, x.assigned)
			result, err := r.jobs.GetResult(t.Context(), &dtaskv1.GetResultRequest{Job: "1", Consistency: stale})
			if err != nil {
				t.Fatal(err)
			}
			wantCounts(t, "result", result.GetJob(), running, x.assigned)
		})
	}
}

// A watch with tasks shows what is in the log, and so do webhooks.
func TestAWatchShowsTheStartsInTheLog(t *testing.T) {
	t.Parallel()
	r := setup(t)
	started := r.startOnce(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := r.jobs.WatchJob(ctx, &dtaskv1.WatchJobRequest{Id: "1", WithTasks: true})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, "watch", first.GetJob(), 4, 4)
	if got := first.GetTasks()[0]; got.GetState() != dtaskv1.TaskState_TASK_STATE_RUNNING || got.GetStartedAt() != started {
		t.Errorf("got %v, want running since %d", got, started)
	}
	r.leader.op(t, &fsm.RecordStart{Items: []fsm.HeldAttempt{held(1, 13, 1, r.taskOf(13).Worker)}})
	for next := first; len(next.GetTasks()) != 1; {
		if next, err = stream.Recv(); err != nil {
			t.Fatal(err)
		}
		if len(next.GetTasks()) == 1 {
			wantCounts(t, "the next change", next.GetJob(), 5, 3)
			if got := next.GetTasks()[0]; got.GetId() != "z" || got.GetState() != dtaskv1.TaskState_TASK_STATE_RUNNING {
				t.Errorf("got %v, want z running", got)
			}
		}
	}
	r.machine.Read(func(st *fsm.State, _ uint64) { wantCounts(t, "webhook", JobView(st, 1), 5, 3) })
}
