package api

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestTheMostUrgentTasksComeFirst(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.inAllStates(t)
	for _, x := range []struct {
		req      *dtaskv1.ListTasksRequest
		want     []string
		selected uint32
	}{
		{&dtaskv1.ListTasksRequest{MostUrgent: 100}, []string{"dead", "held", "running", "retry", "run", "command", "blocked-by-dead", "done"}, 8},
		{&dtaskv1.ListTasksRequest{MostUrgent: 2}, []string{"dead", "held"}, 8},
		{&dtaskv1.ListTasksRequest{MostUrgent: 1, States: []dtaskv1.TaskState{dtaskv1.TaskState_TASK_STATE_PENDING}}, []string{"run"}, 2},
		{&dtaskv1.ListTasksRequest{MostUrgent: 5, Task: "retry"}, []string{"retry"}, 1},
		{&dtaskv1.ListTasksRequest{MostUrgent: 5, States: []dtaskv1.TaskState{dtaskv1.TaskState_TASK_STATE_LOST}}, nil, 0},
	} {
		x.req.Job = "1"
		pages, err := r.tasks(t, x.req)
		if err != nil || len(pages) != 1 || pages[0].GetFreshness() == nil {
			t.Fatalf("%v: got %v, %v", x.req, pages, err)
		}
		var got []string
		for _, task := range pages[0].GetTasks() {
			got = append(got, task.GetId())
		}
		if !slices.Equal(got, x.want) || pages[0].GetSelected() != x.selected {
			t.Errorf("%v: got %v of %d, want %v of %d", x.req, got, pages[0].GetSelected(), x.want, x.selected)
		}
	}
	_, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1", MostUrgent: maxPageTasks + 1})
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
}

func TestLevelsAreCountedOncePerJob(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for i := range 3 {
		r.submit(t, fmt.Sprint("job-", i), diamond()...)
	}
	for range 2 {
		for id := range 3 {
			job, err := r.jobs.GetJob(t.Context(), &dtaskv1.GetJobRequest{Id: fmt.Sprint(id + 1), WithLevels: true})
			if err != nil || !slices.Equal(job.GetLevels(), []uint32{1, 2, 1}) {
				t.Fatalf("got levels %v, %v", job.GetLevels(), err)
			}
		}
	}
	var c levelsCache
	c.put(1, make([]uint32, maxCachedLevels-1))
	c.put(1, nil) // known already
	c.put(2, make([]uint32, 2))
	_, first := c.get(1)
	if counts, second := c.get(2); first || !second || len(counts) != 2 || c.total != 2 {
		t.Errorf("the cache has job 1 (%t) and %d levels, of %d for job 2", first, c.total, len(counts))
	}
}
