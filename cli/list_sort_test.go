package cli

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// mixedJobs returns n jobs, newest first, many of which have equal or missing values.
func mixedJobs(n int) []*dtaskv1.Job {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	jobs := make([]*dtaskv1.Job, n)
	for i := range jobs {
		at := r.Int64N(4) * r.Int64N(4)
		jobs[i] = &dtaskv1.Job{
			Id: strconv.Itoa(n - i), Name: fmt.Sprint("n", r.IntN(3)), Owner: []string{"", "ada", "bob"}[r.IntN(3)], State: allJobStates[r.IntN(5)],
			Priority: dtaskv1.Priority(1 + r.IntN(4)), SubmittedAt: 1 + at, StartedAt: at, CompletedAt: at * r.Int64N(2), //nolint:gosec // small
			TasksTotal: r.Uint32N(5), TasksFailed: r.Uint32N(3),
		}
	}
	return jobs
}

func TestEveryOrderSortsAllJobsAndKeepsThoseWithoutAValueLast(t *testing.T) {
	t.Parallel()
	jobs := mixedJobs(500)
	for _, order := range jobOrders {
		forward, backward := slices.Clone(jobs), slices.Clone(jobs)
		slices.SortFunc(forward, order.comparison(false, 99))
		slices.SortFunc(backward, order.comparison(true, 99))
		value := order.value(99)
		for i := 1; i < len(jobs); i++ {
			a, b := value(forward[i-1]), value(forward[i])
			c, d := value(backward[i-1]), value(backward[i])
			switch {
			case a.missing && !b.missing || c.missing && !d.missing:
				t.Fatalf("%s: a job without a value precedes one with a value", order)
			case !b.missing && (a.text > b.text || a.number > b.number), !d.missing && (c.text < d.text || c.number < d.number):
				t.Fatalf("%s: jobs %s and %s, or reversed %s and %s, are in the wrong order", order, forward[i-1].GetId(), forward[i].GetId(), backward[i-1].GetId(), backward[i].GetId())
			case a == b && jobNumber(forward[i-1]) < jobNumber(forward[i]):
				t.Fatalf("%s: of two equal jobs, the older one is first", order)
			}
		}
	}
}

func TestALimitKeepsTheFirstJobsOfTheWholeOrder(t *testing.T) {
	t.Parallel()
	leader, c := leaderAndClient(t)
	jobs := mixedJobs(500)
	clear(leader.jobs)
	for _, j := range jobs {
		leader.jobs[j.GetId()] = &fakeJob{job: j}
	}
	for _, order := range jobOrders {
		compare := order.comparison(true, 99)
		want := slices.SortedFunc(slices.Values(jobs), compare)
		for _, limit := range []int{0, 1, 7, 499, 501} {
			got, err := listSorted(t.Context(), c, client.JobFilter{Limit: limit}, compare)
			first := want
			if limit > 0 {
				first = want[:min(limit, len(want))]
			}
			if err != nil || !slices.Equal(jobIDs(got), jobIDs(first)) {
				t.Errorf("%s, limit %d: got %v, %v; want %v", order, limit, jobIDs(got), err, jobIDs(first))
			}
		}
	}
}
