package cli

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A jobOrder is a value of list --sort.
type jobOrder string

// The orders of a list.
const (
	orderID        jobOrder = "id"
	orderName      jobOrder = "name"
	orderState     jobOrder = "state"
	orderPriority  jobOrder = "priority"
	orderOwner     jobOrder = "owner"
	orderTasks     jobOrder = "tasks"
	orderFailed    jobOrder = "failed"
	orderSubmitted jobOrder = "submitted"
	orderStarted   jobOrder = "started"
	orderEnded     jobOrder = "ended"
	orderTook      jobOrder = "took"
)

var jobOrders = []jobOrder{
	orderID, orderName, orderState, orderPriority, orderOwner, orderTasks, orderFailed, orderSubmitted, orderStarted,
	orderEnded, orderTook,
}

// comparison returns how an order compares jobs. Jobs without the value come last, also if
// the order is reversed, and equal ones are listed with the newest first.
func (o jobOrder) comparison(reverse bool, now int64) func(a, b *dtaskv1.Job) int {
	value := o.value(now)
	return func(a, b *dtaskv1.Job) int {
		x, y := value(a), value(b)
		order := cmp.Or(cmp.Compare(x.text, y.text), cmp.Compare(x.number, y.number))
		if reverse {
			order = -order
		}
		if x.missing != y.missing {
			order = 1
			if y.missing {
				order = -1
			}
		}
		return cmp.Or(order, cmp.Compare(jobNumber(b), jobNumber(a)))
	}
}

// A sortValue is what a job is sorted by, ascending.
type sortValue struct {
	text    string
	number  int64
	missing bool
}

// value returns the function that reads what jobs are sorted by: names and owners from A,
// states from pending to cancelled, everything else with the latest or largest first.
func (o jobOrder) value(now int64) func(*dtaskv1.Job) sortValue {
	latest := func(at int64) sortValue { return sortValue{number: -at, missing: at == 0} }
	switch o {
	case orderName:
		return func(j *dtaskv1.Job) sortValue { return sortValue{text: j.GetName()} }
	case orderOwner:
		return func(j *dtaskv1.Job) sortValue { return sortValue{text: j.GetOwner(), missing: j.GetOwner() == ""} }
	case orderState:
		return func(j *dtaskv1.Job) sortValue {
			return sortValue{number: int64(slices.Index(allJobStates, j.GetState()))}
		}
	case orderPriority:
		return func(j *dtaskv1.Job) sortValue { return sortValue{number: -int64(j.GetPriority())} }
	case orderTasks:
		return func(j *dtaskv1.Job) sortValue { return sortValue{number: -int64(j.GetTasksTotal())} }
	case orderFailed:
		return func(j *dtaskv1.Job) sortValue { return sortValue{number: -int64(j.GetTasksFailed())} }
	case orderSubmitted:
		return func(j *dtaskv1.Job) sortValue { return latest(j.GetSubmittedAt()) }
	case orderStarted:
		return func(j *dtaskv1.Job) sortValue { return latest(j.GetStartedAt()) }
	case orderEnded:
		return func(j *dtaskv1.Job) sortValue { return latest(j.GetCompletedAt()) }
	case orderTook:
		return func(j *dtaskv1.Job) sortValue {
			if j.GetStartedAt() == 0 {
				return sortValue{missing: true}
			}
			return sortValue{number: j.GetStartedAt() - cmp.Or(j.GetCompletedAt(), now)}
		}
	case orderID:
	}
	return func(j *dtaskv1.Job) sortValue { return sortValue{number: -jobNumber(j)} }
}

// jobNumber is the number that a job's ID is.
func jobNumber(j *dtaskv1.Job) int64 {
	n, _ := strconv.ParseInt(j.GetId(), 10, 64) // coordinators send numbers
	return n
}

// listSorted lists the first jobs, up to f.Limit, of all that match f in an order. While it
// reads them, it holds at most twice as many.
func listSorted(ctx context.Context, c *client.Client, f client.JobFilter, compare func(a, b *dtaskv1.Job) int) ([]*dtaskv1.Job, error) {
	limit := f.Limit
	f.Limit = 0
	jobs := []*dtaskv1.Job{}
	for job, err := range c.Jobs(ctx, f) {
		if err != nil {
			return nil, err
		}
		if jobs = append(jobs, job); limit > 0 && len(jobs) >= 2*limit {
			slices.SortFunc(jobs, compare)
			clear(jobs[limit:])
			jobs = jobs[:limit]
		}
	}
	slices.SortFunc(jobs, compare)
	if limit > 0 && len(jobs) > limit {
		jobs = jobs[:limit]
	}
	return jobs, nil
}
