package scheduler

import "slices"

// TaskViews are the views of one task, one for each alternative, by number: the task starts as
// soon as it does for one of them. There is at least one.
type TaskViews []*TaskView

// Views is View for a task with all its alternatives. c is the class that Class returned.
func (s *Scheduler) Views(t TaskRef, c ClassID, p Priority, avoid WorkerID, valid func(TaskRef) bool) TaskViews {
	n := s.Alternatives(c)
	views := make(TaskViews, n)
	for i := range n {
		views[i] = s.View(t, s.Alternative(c, i), p, avoid, valid)
	}
	return views
}

// Fits is TaskView.Fits for any alternative.
func (l TaskViews) Fits() bool { return slices.ContainsFunc(l, (*TaskView).Fits) }

// Starts is TaskView.Starts for any alternative.
func (l TaskViews) Starts() bool { return slices.ContainsFunc(l, (*TaskView).Starts) }

// EverFits is TaskView.EverFits for any alternative.
func (l TaskViews) EverFits() bool { return slices.ContainsFunc(l, (*TaskView).EverFits) }

// Changes is TaskView.Changes for all alternatives: one change of each kind, worker, label
// and name, with the least amount that suffices for any of them. What changes the demand of
// the task names the alternative that it changes, and AddWorker is for the first one that
// another worker could take.
func (l TaskViews) Changes() (list []Change, complete bool) {
	if len(l) == 1 {
		return l[0].Changes()
	}
	complete = true
	for number, v := range l {
		changes, all := v.Changes()
		complete = complete && all
		for _, c := range changes {
			if c.Kind == LowerDemand {
				c.Alternative = number
			}
			switch at := slices.IndexFunc(list, c.isLike); {
			case at < 0:
				list = append(list, c)
			case c.Amount < list[at].Amount:
				list[at] = c
			}
		}
	}
	slices.SortStableFunc(list, compareChanges)
	return list, complete
}

// isLike reports whether two changes differ in their amounts only, or in the worker that
// joins.
func (c *Change) isLike(o Change) bool {
	return c.Kind == o.Kind && c.Worker == o.Worker && c.Label == o.Label && c.Name == o.Name && c.Alternative == o.Alternative
}
