package api

import (
	"cmp"
	"slices"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// pending explains a task that waits for a worker.
func (x *explainer) pending() {
	c := x.soft.Capacity
	if c == nil { // the task changes faster than it can be explained
		x.add(&dtaskv1.Reason{Code: "being_assigned"})
		x.resp.Complete = false
		return
	}
	x.groups(c)
	for _, r := range x.waits(c) {
		x.add(r)
	}
	if c.Higher+c.Earlier > 0 && !c.Fits {
		// A lower bound of the earlier ones is shown as it is: the text has "at least".
		r := &dtaskv1.Reason{Code: "tasks_ahead", Want: int64(c.Higher), Total: int64(c.Higher + c.Earlier), Unit: "tasks"} //nolint:gosec // counts
		if c.AtLeast {
			r.Code = "many_tasks_ahead"
		}
		x.add(r)
	}
	if x.soft.QueueTimeout > 0 {
		x.add(&dtaskv1.Reason{Code: "queue_timeout", Until: x.soft.QueueTimeout})
	}
	if x.soft.HeldUntil == 0 && !x.soft.Paused {
		x.capacityChanges(c)
	}
}

// waits returns why the task is not assigned, the most important first.
func (x *explainer) waits(c *sequencer.Capacity) (list []*dtaskv1.Reason) {
	if x.soft.Paused {
		list = append(list, &dtaskv1.Reason{Code: "assignment_paused"})
	}
	if x.soft.HeldUntil > 0 {
		list = append(list, &dtaskv1.Reason{Code: "waits_for_stopping", Until: x.soft.HeldUntil})
	}
	if c.Limit > 0 && c.Held >= c.Limit {
		r := &dtaskv1.Reason{Code: "max_parallel", Free: int64(c.Held), Total: int64(c.Limit), Unit: "attempts"}
		if a, ok := x.st.ArrayTask(x.at); ok {
			r.Task = a.Name
		}
		return append(list, r)
	}
	up := 0
	for _, g := range c.Groups {
		_, n := x.visible(g.Workers)
		up += int(n)
	}
	switch {
	case c.Fits && x.soft.Busy:
		return append(list, &dtaskv1.Reason{Code: "assignment_busy"})
	case c.Fits:
		return append(list, &dtaskv1.Reason{Code: "being_assigned"})
	case up == 0:
		return append(list, &dtaskv1.Reason{Code: "no_worker"})
	case !c.EverFits:
		return append(list, &dtaskv1.Reason{Code: "fits_no_worker"})
	}
	return append(list, &dtaskv1.Reason{Code: "no_free_capacity"})
}

// visible returns the names of the workers that the caller may know of.
func (x *explainer) visible(ids []fsm.WorkerID) (names []string, n uint32) {
	for _, id := range ids {
		w := x.st.Worker(id)
		if w == nil || !servesCaller(w, x.caller) {
			continue
		}
		if n++; n <= maxExplainedNames {
			names = append(names, w.Name)
		}
	}
	return names, n
}

// groups adds the workers by their obstacles, and those that are down.
func (x *explainer) groups(c *sequencer.Capacity) {
	show := func(ids []fsm.WorkerID, obstacles ...*dtaskv1.Reason) {
		names, n := x.visible(ids)
		if n == 0 || len(x.resp.GetWorkers()) == maxExplained {
			return
		}
		for _, o := range obstacles {
			o.Text = reasonText(o)
		}
		x.resp.Workers = append(x.resp.Workers, &dtaskv1.WorkerGroup{Workers: n, Names: names, Obstacles: obstacles})
	}
	for _, g := range c.Groups {
		obstacles := make([]*dtaskv1.Reason, len(g.Obstacles))
		for i, o := range g.Obstacles {
			obstacles[i] = &dtaskv1.Reason{Code: o.Code, Name: o.Name, Value: o.Value, Want: o.Want, Free: o.Free, Total: o.Total}
			switch o.Code {
			case "no_free_slot":
				obstacles[i].Unit = "slots"
			case "resource_short":
				obstacles[i].Unit = unitThousandths
			case "namespace_missing":
				obstacles[i].Name = cmp.Or(o.Name, fsm.DefaultNamespace)
			}
		}
		show(g.Workers, obstacles...)
	}
	var down []fsm.WorkerID
	for w := range x.st.Workers() {
		if w.State != fsm.WorkerUp {
			down = append(down, w.ID)
		}
	}
	show(down, &dtaskv1.Reason{Code: "worker_down"})
}

// unitThousandths is the unit of amounts of resources.
const unitThousandths = "thousandths"

// changeUnits are the units of the amounts of changes.
var changeUnits = map[string]string{
	"add_resource": unitThousandths, "lower_resource": unitThousandths, "add_slots": "slots", "raise_max_parallel": "attempts",
}

// capacityChanges adds the changes after which the task gets a free slot. Equal changes of
// several workers are one.
func (x *explainer) capacityChanges(c *sequencer.Capacity) {
	x.resp.Complete = x.resp.GetComplete() && c.Complete && !c.Fits && !x.soft.Busy
	type key struct {
		code, name, value string
		amount            int64
	}
	var order []key
	workers := make(map[key][]fsm.WorkerID)
	for _, s := range c.Changes {
		if s.Code == "add_namespace" {
			s.Name = cmp.Or(s.Name, fsm.DefaultNamespace)
		}
		k := key{s.Code, s.Name, s.Value, s.Amount}
		if s.Worker == 0 {
			x.change(&dtaskv1.StartChange{Code: s.Code, Name: s.Name, Value: s.Value, Amount: s.Amount, Unit: changeUnits[s.Code], Worker: showOffer(s.New)})
			continue
		}
		if workers[k] == nil {
			order = append(order, k)
		}
		workers[k] = append(workers[k], s.Worker)
	}
	slices.SortStableFunc(order, func(a, b key) int {
		if a.code == b.code && a.name == b.name {
			return cmp.Compare(a.amount, b.amount)
		}
		return 0
	})
	for _, k := range order {
		names, n := x.visible(workers[k])
		switch {
		case n == 0:
		case len(x.resp.GetChanges()) == maxExplained:
			x.resp.Complete = false
		default:
			x.change(&dtaskv1.StartChange{Code: k.code, Name: k.name, Value: k.value, Amount: k.amount, Unit: changeUnits[k.code], Workers: n, Names: names})
		}
	}
}

// showOffer shows what a new worker must offer; nil if none joins.
func showOffer(n *sequencer.NewWorker) *dtaskv1.WorkerOffer {
	if n == nil {
		return nil
	}
	o := &dtaskv1.WorkerOffer{
		Slots: uint32(n.Slots), Type: n.Type, Namespace: cmp.Or(n.Namespace, fsm.DefaultNamespace), //nolint:gosec // at most 65,535
		Labels: make(map[string]string), Resources: make(map[string]int64),
	}
	for _, l := range n.Labels {
		if l.Key == fsm.SecretLabel {
			o.Secrets = append(o.Secrets, l.Value)
		} else {
			o.Labels[l.Key] = l.Value
		}
	}
	for _, r := range n.Resources {
		o.Resources[r.Name] = r.Amount
	}
	return o
}
