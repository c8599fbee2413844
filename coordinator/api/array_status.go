package api

import (
	"cmp"
	"slices"
	"sort"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// arrays counts the tasks of each array of the job by state. The tasks of the largest
// array are not visited: they are those of the job without all others.
func (r *taskReader) arrays() []*dtaskv1.ArrayStatus {
	arrays := r.st.Arrays(r.job.ID)
	if len(arrays) == 0 {
		return nil
	}
	largest := slices.MaxFunc(arrays, func(a, b fsm.ArrayTask) int { return cmp.Compare(a.Count, b.Count) }).First
	rest, running := r.job.Counts, r.job.Running
	visit := func(first, end uint32) ([len(rest)]uint32, uint32) {
		counts, n := r.st.CountStates(r.job.ID, first, end)
		running -= n
		for state, n := range counts {
			rest[state] -= n
		}
		return counts, n
	}
	list, counts := make([]*dtaskv1.ArrayStatus, len(arrays)), make([][len(rest)]uint32, len(arrays))
	runningIn := r.observedIn(arrays)
	next := uint32(0) // first task that was not visited
	for k, a := range arrays {
		visit(next, a.First)
		if next = a.First + a.Count; a.First != largest {
			var n uint32
			counts[k], n = visit(a.First, next)
			runningIn[k] += n
		}
	}
	visit(next, r.job.Total)
	for k, a := range arrays {
		if a.First == largest {
			counts[k] = rest
			runningIn[k] += running
		}
		list[k] = r.arrayStatus(a, counts[k][:], runningIn[k])
	}
	return list
}

// observedIn counts the running tasks of each array that fsm.Job.Running doesn't count.
func (r *taskReader) observedIn(arrays []fsm.ArrayTask) []uint32 {
	running := make([]uint32, len(arrays))
	for i, o := range r.observed {
		k := sort.Search(len(arrays), func(k int) bool { return arrays[k].First > i }) - 1
		if k < 0 || i >= arrays[k].First+arrays[k].Count {
			continue
		}
		if onlyObserved(r.st.AttemptState(r.ref(i)), o) {
			running[k]++
		}
	}
	return running
}

// arrayStatus describes an array by the number of its tasks in each stored state.
func (r *taskReader) arrayStatus(a fsm.ArrayTask, counts []uint32, running uint32) *dtaskv1.ArrayStatus {
	aggregated := uint32(0)
	// Other tasks depend on all tasks of an array or on none.
	if isAggregated(r.st, r.job.State, r.ref(a.First), fsm.Completed) {
		aggregated = counts[fsm.Completed]
	}
	status := &dtaskv1.ArrayStatus{
		Id: a.Name, First: a.First, Tasks: a.Count, Items: a.Items, MaxParallel: a.MaxParallel,
		TasksByState: namedCounts(counts, running, aggregated),
	}
	if counts[fsm.Pending] > 0 {
		status.PendingReason = r.pendingReason(r.ref(a.First)) // all tasks of an array have one policy
	}
	return status
}
