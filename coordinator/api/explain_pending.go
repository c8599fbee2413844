package api

import (
	"cmp"
	"slices"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// pending explains a task that waits for a worker.
func (x *explainer) pending() {
	c := x.capacity
	if c == nil { // the task changes faster than it can be explained
		x.add(&dtaskv1.Reason{Code: "being_assigned"})
		x.resp.Complete = false
		return
	}
	x.groups(c)
	if w := x.st.Worker(x.soft.EndsOn); w != nil && servesCaller(w, x.caller) {
		x.add(&dtaskv1.Reason{Code: "takes_place", Worker: w.Name, Want: int64(x.soft.Ends), Unit: "attempts"})
	}
	waits := x.waits(c)
	for _, r := range waits {
		x.add(r)
	}
	if c.Higher+c.Earlier > 0 && !c.Fits && !c.Waits {
		r := &dtaskv1.Reason{Code: "tasks_ahead", Want: int64(c.Higher), Total: int64(c.Higher + c.Earlier), Unit: "tasks"} //nolint:gosec // counts
		if c.AtLeast {
			r.Code = "many_tasks_ahead"
		}
		x.add(r)
	}
	if waits[len(waits)-1].GetCode() == "no_free_capacity" {
		x.aheadByShare(c)
	}
	if x.soft.QueueTimeout > 0 {
		x.add(&dtaskv1.Reason{Code: "queue_timeout", Until: x.soft.QueueTimeout})
	}
	if !slices.ContainsFunc(waits, isAboveQuota) {
		x.estimate(c)
	}
	// While more is ready than the leader can assign, the order of the others is not known.
	if x.resp.Complete = !x.soft.Busy && !x.soft.Paused && x.soft.HeldUntil == 0; x.resp.GetComplete() {
		x.capacityChanges(c)
	}
}

// isAboveQuota reports whether a reason is that a task, by any of its alternatives, needs more than a
// quota of its queue: it never starts.
func isAboveQuota(r *dtaskv1.Reason) bool {
	return r.GetCode() == "queue_short" && r.GetWant() > r.GetTotal() && r.GetAlternative() == 0
}

// aheadByShare adds the queues and owners that get what becomes free before the task does.
func (x *explainer) aheadByShare(c *sequencer.Capacity) {
	if c.QueuesAhead > 0 {
		x.add(&dtaskv1.Reason{Code: "queues_ahead", Total: int64(c.QueuesAhead), Unit: "queues"}) //nolint:gosec // a count
	}
	if c.OwnersAhead > 0 {
		x.add(&dtaskv1.Reason{Code: "owners_ahead", Total: int64(c.OwnersAhead), Unit: "owners"}) //nolint:gosec // a count
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
	before := len(list)
	if c.Limit > 0 && c.Held >= c.Limit {
		r := &dtaskv1.Reason{Code: "max_parallel", Free: int64(c.Held), Total: int64(c.Limit), Unit: "attempts"}
		if a, ok := x.st.ArrayTask(x.at); ok {
			r.Task, r.Tasks = a.Name, x.holders(a)
		}
		return append(list, r)
	}
	for _, l := range c.Limits {
		switch {
		case l.Paused:
			list = append(list, &dtaskv1.Reason{Code: "limit_settles", Name: l.Name})
		case l.Running > 0 && l.Held >= l.Running:
			list = append(list, &dtaskv1.Reason{
				Code: "limit_full", Name: l.Name, Free: int64(l.Held), Total: int64(l.Running), Unit: "attempts",
				Tasks: namedTasks(x.st, x.caller, l.Holders, maxExplainedNames),
			})
		case l.Rated && l.Tokens == 0:
			set := x.st.NamedLimit(fsm.LimitOf(l.Name)).GetSettings()
			list = append(list, &dtaskv1.Reason{Code: "limit_rate", Name: l.Name, Value: spec.FormatRate(set.Rate, set.PeriodMS), Until: x.soft.RateUntil[l.Name]})
		}
	}
	if len(list) > before {
		return list
	}
	for _, o := range c.Queue {
		r := x.obstacle(&o)
		if o.Code == "queue_short" {
			r.Unit = unitThousandths
		}
		list = append(list, r)
	}
	if len(c.Queue) > 0 {
		return list
	}
	if r := x.awaitsWorker(c); r != nil {
		return append(list, r)
	}
	switch {
	case c.Fits && x.soft.Busy:
		return append(list, &dtaskv1.Reason{Code: "assignment_busy"})
	case c.Fits:
		return append(list, &dtaskv1.Reason{Code: "being_assigned"})
	case len(c.Groups) == 0:
		return append(list, &dtaskv1.Reason{Code: "no_worker"})
	case !c.EverFits:
		return append(list, x.fitsNoWorker())
	}
	return append(list, &dtaskv1.Reason{Code: "no_free_capacity"})
}

// fitsNoWorker names what no worker fulfills, of those that the caller may see. The state may have
// one that does and that the leader does not count, such as one that is not connected, or none
// that is up and has slots: then nothing is named.
func (x *explainer) fitsNoWorker() *dtaskv1.Reason {
	number, ok := x.st.PolicyNumber(x.at)
	if !ok {
		return &dtaskv1.Reason{Code: "fits_no_worker"}
	}
	r := unmetDemand(x.st, x.job.Header, x.job.Policy(number), x.sees)
	if r == nil || r.GetCauseCode() == "no_worker" {
		r = &dtaskv1.Reason{}
	}
	r.Code = "fits_no_worker"
	return r
}

// holders returns the first tasks of an array that have an attempt.
func (x *explainer) holders(a fsm.ArrayTask) (names []string) {
	for i, t := range x.st.AttemptStates(x.job.ID, a.First, a.First+a.Count) {
		if t.State == fsm.Assigned {
			names = append(names, x.st.Name(x.ref(i)))
		}
		if len(names) == maxExplainedNames {
			break
		}
	}
	return names
}

// names returns the names of the first workers.
func (x *explainer) names(ids []fsm.WorkerID) (names []string) {
	for _, id := range ids[:min(len(ids), maxExplainedNames)] {
		if w := x.st.Worker(id); w != nil {
			names = append(names, w.Name)
		}
	}
	return names
}

// groups adds the workers by their obstacles, and those that are down.
func (x *explainer) groups(c *sequencer.Capacity) {
	show := func(ids []fsm.WorkerID, obstacles ...*dtaskv1.Reason) {
		if len(ids) == 0 || len(x.resp.GetWorkers()) == maxExplained {
			return
		}
		for _, o := range obstacles {
			o.Text = sentence(o)
		}
		x.resp.Workers = append(x.resp.Workers, &dtaskv1.WorkerGroup{Workers: uint32(len(ids)), Names: x.names(ids), Obstacles: obstacles}) //nolint:gosec // a count
	}
	for _, g := range c.Groups {
		obstacles := make([]*dtaskv1.Reason, len(g.Obstacles))
		for i, o := range g.Obstacles {
			obstacles[i] = x.obstacle(&o)
			switch o.Code {
			case "no_free_slot":
				obstacles[i].Unit = "slots"
			case "resource_short", "queue_short":
				obstacles[i].Unit = unitThousandths
			case "namespace_missing":
				obstacles[i].Name = cmp.Or(o.Name, fsm.DefaultNamespace)
			}
		}
		show(g.Workers, obstacles...)
	}
	var down []fsm.WorkerID
	for w := range x.st.Workers() {
		if w.State != fsm.WorkerUp && x.sees(w.ID) {
			down = append(down, w.ID)
		}
	}
	show(down, &dtaskv1.Reason{Code: "worker_down"})
}

// unitThousandths is the unit of amounts of resources.
const unitThousandths = "thousandths"

// changeUnits are the units of the amounts of changes.
var changeUnits = map[string]string{
	"add_resource": unitThousandths, "lower_resource": unitThousandths, "add_slots": "slots", "raise_max_parallel": "attempts", "raise_limit": "attempts", "remove_rate": "attempts",
	"raise_max_running": "attempts", "raise_max": unitThousandths,
}

// capacityChanges adds the changes after which the task gets a free slot. Equal changes of
// several workers are one.
func (x *explainer) capacityChanges(c *sequencer.Capacity) {
	x.resp.Complete = c.Complete
	type key struct {
		code, name, value string
		amount            int64
		alternative       int
	}
	var order []key
	workers, first, offers := make(map[key][]fsm.WorkerID), make(map[string]int), make(map[key]*sequencer.NewWorker)
	for _, s := range c.Changes {
		if s.Code == "add_namespace" {
			s.Name = cmp.Or(s.Name, fsm.DefaultNamespace)
		}
		if id := x.returning(c, s.New); id != 0 {
			s = sequencer.StartChange{Code: "connect_worker", Worker: id}
		}
		k := key{s.Code, s.Name, s.Value, s.Amount, s.Alternative}
		if _, known := workers[k]; !known {
			order = append(order, k)
		}
		if _, known := first[s.Code+s.Name]; !known {
			first[s.Code+s.Name] = len(first)
		}
		workers[k], offers[k] = append(workers[k], s.Worker), s.New
	}
	slices.SortStableFunc(order, func(a, b key) int {
		return cmp.Or(cmp.Compare(first[a.code+a.name], first[b.code+b.name]), cmp.Compare(a.alternative, b.alternative), cmp.Compare(a.amount, b.amount))
	})
	for _, k := range order {
		change := &dtaskv1.StartChange{Code: k.code, Name: k.name, Value: k.value, Amount: k.amount, Unit: changeUnits[k.code], Worker: showOffer(offers[k]), Alternative: uint32(k.alternative)} //nolint:gosec // few
		if workers[k][0] != 0 {
			change.Names, change.Workers = x.names(workers[k]), uint32(len(workers[k])) //nolint:gosec // a count
		}
		if len(x.resp.GetChanges()) == maxExplained {
			x.resp.Complete = false
			return
		}
		x.change(change)
	}
}

// returning returns the worker that is down and is the one that joins, because the task is pinned
// to it; 0 if none is. It must have had all that the task needs. Tasks before the task could take
// what it had beyond that: then it is not known whether its return suffices.
func (x *explainer) returning(c *sequencer.Capacity, joins *sequencer.NewWorker) fsm.WorkerID {
	if joins == nil || c.Higher+c.Earlier+c.QueuesAhead+c.OwnersAhead > 0 {
		return 0
	}
	at := slices.IndexFunc(joins.Labels, func(l fsm.Label) bool { return l.Key == fsm.WorkerLabel })
	if at < 0 {
		return 0
	}
	w := x.st.WorkerByName(joins.Labels[at].Value)
	number, ok := x.st.PolicyNumber(x.at)
	if !ok || w == nil || w.State == fsm.WorkerUp || w.Drains() || int(w.Slots) < joins.Slots || !x.sees(w.ID) {
		return 0
	}
	lacks := func(r requirement) bool { return !r.met(w) }
	short := func(r fsm.Resource) bool { return amountOf(w, r.Name) < r.Amount }
	if slices.ContainsFunc(requirements(x.st, x.job.Header, x.job.Policy(number)), lacks) || slices.ContainsFunc(joins.Resources, short) {
		return 0
	}
	return w.ID
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

// obstacle returns an obstacle without its unit and its text.
func (x *explainer) obstacle(o *sequencer.Obstacle) *dtaskv1.Reason {
	r := &dtaskv1.Reason{
		Code: o.Code, Name: o.Name, Value: o.Value, Want: o.Want, Free: o.Free, Total: o.Total, Saved: o.Saved, Varies: o.Varies,
		Alternative: uint32(o.Alternative), //nolint:gosec // few
	}
	if o.Saved > 0 {
		r.Tasks = namedTasks(x.st, x.caller, []fsm.TaskRef{o.SavedFor}, 1)
	}
	return r
}
