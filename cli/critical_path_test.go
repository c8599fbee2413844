package cli

import (
	"math/rand/v2"
	"slices"
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// pathOf returns the ids of the critical path of tasks.
func pathOf(ended bool, tasks ...*dtaskv1.Task) (ids []string) {
	var j jobTasks
	for i, t := range tasks {
		t.Index = uint32(i)
		j.add(t)
	}
	for _, t := range j.path(ended) {
		ids = append(ids, t.id)
	}
	return ids
}

// ran is a task that has completed.
func ran(id string, started, ended int64, needs ...uint32) *dtaskv1.Task {
	return &dtaskv1.Task{Id: id, State: dtaskv1.TaskState_TASK_STATE_COMPLETED, StartedAt: started, CompletedAt: ended, Dependencies: needs}
}

func in(array string, t *dtaskv1.Task) *dtaskv1.Task {
	t.Array = array
	return t
}

func final(t *dtaskv1.Task) *dtaskv1.Task {
	t.Finally = true
	return t
}

func open(id string, state dtaskv1.TaskState, started int64, needs ...uint32) *dtaskv1.Task {
	return &dtaskv1.Task{Id: id, State: state, StartedAt: started, Dependencies: needs}
}

func TestTheCriticalPathFollowsWhatEndedLast(t *testing.T) {
	t.Parallel()
	const pending, running, blocked = dtaskv1.TaskState_TASK_STATE_PENDING, dtaskv1.TaskState_TASK_STATE_RUNNING, dtaskv1.TaskState_TASK_STATE_BLOCKED
	skipped := &dtaskv1.Task{Id: "skipped", State: dtaskv1.TaskState_TASK_STATE_CANCELLED, CompletedAt: 30, Dependencies: []uint32{0}}
	for name, c := range map[string]struct {
		running bool
		tasks   []*dtaskv1.Task
		want    []string
	}{
		"no tasks":           {false, nil, nil},
		"one":                {false, []*dtaskv1.Task{ran("a", 1, 5)}, []string{"a"}},
		"the later of two":   {false, []*dtaskv1.Task{ran("a", 1, 9), ran("b", 1, 5), ran("c", 9, 12, 0, 1)}, []string{"a", "c"}},
		"the last of all":    {false, []*dtaskv1.Task{ran("a", 1, 9), ran("b", 1, 50), ran("c", 9, 12, 0)}, []string{"b"}},
		"the last of array":  {false, []*dtaskv1.Task{in("m", ran("m[0]", 1, 9)), in("m", ran("m[1]", 1, 20)), in("m", ran("m[2]", 1, 8)), ran("r", 21, 25, 0)}, []string{"m[1]", "r"}},
		"of the right array": {false, []*dtaskv1.Task{in("m", ran("m[0]", 1, 9)), in("n", ran("n[0]", 1, 30)), ran("r", 9, 40, 0)}, []string{"m[0]", "r"}},
		"cleanup":            {false, []*dtaskv1.Task{ran("a", 1, 9), ran("b", 1, 20), final(ran("c", 21, 22)), final(ran("d", 22, 30, 2))}, []string{"b", "c", "d"}},
		"one never started":  {false, []*dtaskv1.Task{ran("a", 1, 20), skipped, ran("c", 30, 40, 1)}, []string{"a", "c"}},
		"while it runs":      {true, []*dtaskv1.Task{ran("a", 1, 9), ran("b", 1, 5), open("x", running, 12, 0), open("y", pending, 0, 1), open("z", blocked, 0, 2)}, []string{"b", "y"}},
		"before it starts":   {true, []*dtaskv1.Task{open("a", pending, 0), open("b", blocked, 0, 0)}, []string{"a"}},
	} {
		if got := pathOf(!c.running, c.tasks...); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// In a run in which each task starts when the last of its dependencies has ended, the path
// takes as long as the run: there is no gap.
func TestACriticalPathWithoutWaitingHasNoGaps(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var j jobTasks
		end, ends := int64(0), make([]int64, 0, 40)
		for i := range 1 + r.IntN(40) {
			start, needs := int64(1000), []uint32(nil)
			for d := range i {
				if r.IntN(8) == 0 {
					needs, start = append(needs, uint32(d)), max(start, ends[d])
				}
			}
			task := ran("t", start, start+1+r.Int64N(100), needs...)
			task.Index = uint32(i)
			j.add(task)
			ends = append(ends, task.GetCompletedAt())
			end = max(end, task.GetCompletedAt())
		}
		ready := int64(1000)
		for _, x := range j.path(true) {
			link := x.link(ready, x.started, 0)
			if link.WaitingMS != 0 || link.RetryingMS != 0 || link.RunningMS != x.ended-x.started {
				t.Fatalf("seed %d: got %+v, ready at %d", seed, link, ready)
			}
			ready = x.ended
		}
		if ready != end {
			t.Fatalf("seed %d: the path ends at %d, want %d", seed, ready, end)
		}
	}
}

func TestTheTimesOfATaskOfAPathAddUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		task                       jobTask
		ready, first, now          int64
		waiting, retrying, running int64
	}{
		"retried":                    {jobTask{started: 50, ended: 80}, 10, 20, 0, 10, 30, 30},
		"it still runs":              {jobTask{started: 50}, 10, 50, 75, 40, 0, 25},
		"it waits":                   {jobTask{}, 10, 0, 75, 65, 0, 0},
		"it started early, by clock": {jobTask{started: 8, ended: 20}, 10, 8, 0, 0, 0, 10},
		"the clock of this machine":  {jobTask{started: 50}, 10, 50, 5, 40, 0, 0},
	} {
		got := c.task.link(c.ready, c.first, c.now)
		if got.WaitingMS != c.waiting || got.RetryingMS != c.retrying || got.RunningMS != c.running {
			t.Errorf("%s: got %d, %d and %d ms", name, got.WaitingMS, got.RetryingMS, got.RunningMS)
		}
	}
}
