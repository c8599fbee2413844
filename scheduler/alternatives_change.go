package scheduler

import (
	"slices"
	"strconv"
)

// TaskViews are the views of one task, one for each alternative, by number: the task starts as
// soon as it does for one of them. There is at least one.
type TaskViews []*TaskView

// Views is View for a task with all its alternatives. c is the class that Class returned.
func (s *Scheduler) Views(t TaskRef, c ClassID, p Priority, avoid WorkerID, valid func(TaskRef) bool) TaskViews {
	n := s.Alternatives(c)
	views := make(TaskViews, n)
	for i := range n {
		views[i] = s.View(t, s.Alternative(c, uint8(i)), p, avoid, valid)
	}
	return views
}

// SetTokens sets the tokens of the limits that have some: a Scheduler has fewer than a rate allows
// while nothing starts.
func (l TaskViews) SetTokens(of func(limit string) uint32) {
	for _, v := range l {
		// unordered: each limit is independent of the others
		for _, x := range v.limitOf {
			if x.rated && x.tokens > 0 {
				x.tokens = of(x.name)
			}
		}
	}
}

// Fits is TaskView.Fits for any alternative.
func (l TaskViews) Fits() bool { return slices.ContainsFunc(l, (*TaskView).Fits) }

// Starts is TaskView.Starts for any alternative.
func (l TaskViews) Starts() bool { return slices.ContainsFunc(l, (*TaskView).Starts) }

// EverFits is TaskView.EverFits for any alternative.
func (l TaskViews) EverFits() bool { return slices.ContainsFunc(l, (*TaskView).EverFits) }

// KeyWorker is TaskView.KeyWorker for the first alternative that has one.
func (l TaskViews) KeyWorker() (k KeyWorker) {
	for _, v := range l {
		if k = v.KeyWorker(); k.Worker != 0 {
			break
		}
	}
	return k
}

// WaitsForKey is TaskView.WaitsForKey for any alternative: otherwise the task waits for more.
func (l TaskViews) WaitsForKey() bool { return slices.ContainsFunc(l, (*TaskView).WaitsForKey) }

// KeyWaitEnds is TaskView.KeyWaitEnds for the first alternative.
func (l TaskViews) KeyWaitEnds() int64 { return l[0].KeyWaitEnds() }

// Queue is TaskView.Queue. A quota that some of the alternatives keep within is not among
// them: Groups names it.
func (l TaskViews) Queue() []Obstacle {
	if len(l) == 1 {
		return l[0].Queue()
	}
	var common, short []Obstacle
	all := true
	for number, v := range l {
		own := len(short)
		for _, o := range v.Queue() {
			switch {
			case o.Kind == QueueShort:
				o.Alternative = number + 1
				short = append(short, o)
			case number == 0:
				common = append(common, o)
			}
		}
		all = all && len(short) > own
	}
	if all {
		return append(common, short...)
	}
	return common
}

// Groups is TaskView.Groups: what holds back each alternative at a worker, unless one of them
// has nothing but what all have.
func (l TaskViews) Groups() []WorkerGroup {
	if len(l) == 1 {
		return l[0].Groups()
	}
	var groups []WorkerGroup
	known := make(map[string]int)
	for i := range l[0].fleet.offers {
		var key []byte
		for _, v := range l {
			v.group()
			key = strconv.AppendUint(append(key, ' '), uint64(v.groupOf[i]), 10)
		}
		at, found := known[string(key)]
		if !found {
			at = len(groups)
			known[string(key)] = at
			groups = append(groups, WorkerGroup{Obstacles: l.obstacles(i)})
		}
		groups[at].Workers = append(groups[at].Workers, l[0].fleet.offers[i].id)
	}
	return groups
}

// obstacles returns why the worker at a position of the fleet can't take the task.
func (l TaskViews) obstacles(at int) []Obstacle {
	var common, own []Obstacle
	free := false
	for number, v := range l {
		before := len(own)
		for _, o := range v.groups[v.groupOf[at]].obstacles {
			switch {
			case o.Kind == ResourceShort || o.Kind == QueueShort:
				o.Alternative = number + 1
				own = append(own, o)
			case number == 0:
				common = append(common, o)
			}
		}
		free = free || len(own) == before
	}
	if free {
		return common
	}
	return append(common, own...)
}

// Estimate is the earliest TaskView.Estimate of an alternative. If that of one is unknown for
// another reason than that it never starts, so is that of the task.
func (l TaskViews) Estimate(seed uint64, runTimes func(TaskRef) []int64) Estimate {
	best := Estimate{Doubt: NeverStarts}
	for _, v := range l {
		switch e := v.Estimate(seed, runTimes); {
		case e.Doubt == NeverStarts:
		case e.Doubt != 0:
			return e
		case best.Doubt != 0:
			best = e
		default:
			best.FromMS, best.ToMS = min(best.FromMS, e.FromMS), min(best.ToMS, e.ToMS)
		}
	}
	return best
}

// Changes is TaskView.Changes for all alternatives: one change of each kind, worker, label
// and name, with the least amount that suffices for any of them, and the first label of those
// to add. What changes the demand of
// the task names the alternative that it changes, and AddWorker is for the first one that
// another worker could take.
func (l TaskViews) Changes() (list []Change, complete bool) {
	if len(l) == 1 {
		return l[0].Changes()
	}
	complete = true
	keyed := slices.ContainsFunc(l, func(v *TaskView) bool { return v.homeOf(v.class) != 0 })
	for number, v := range l {
		changes, all := v.Changes()
		complete = complete && all
		for _, c := range changes {
			if c.Kind == LowerDemand {
				c.Alternative = number
			}
			if c.Kind == AddWorker && keyed {
				continue // as without alternatives: the id of the worker decides about the key
			}
			switch at := slices.IndexFunc(list, c.isLike); {
			case at < 0:
				list = append(list, c)
			case c.Amount < list[at].Amount || c.Kind == AddLabel && compareValues(c.Label, list[at].Label) < 0:
				list[at] = c
			}
		}
	}
	list = slices.DeleteFunc(list, func(c Change) bool { // a lower amount may suffice for another alternative
		return slices.ContainsFunc(l, func(v *TaskView) bool {
			return v.spills && (c.Kind == AddSlots || c.Kind == AddResource) || slices.ContainsFunc(v.unsure, c.isLike)
		})
	})
	slices.SortStableFunc(list, compareChanges)
	return list, complete
}

// isLike reports whether two changes differ in their amounts only, in the worker that joins, or
// in the label to add: the worker then lacks the same one for all alternatives.
func (c *Change) isLike(o Change) bool {
	return c.Kind == o.Kind && c.Worker == o.Worker && (c.Kind == AddLabel || c.Label == o.Label) && c.Name == o.Name && c.Alternative == o.Alternative
}
