package scheduler

import (
	"cmp"
	"math"
	"slices"
)

// A ChangeKind is a kind of single change that would start a task. Zero is unset.
type ChangeKind uint8

// The kinds of changes, in the order in which Changes returns them.
const (
	// AcceptTasks: Worker accepts tasks again.
	AcceptTasks ChangeKind = iota + 1
	// AddLabel: Worker has Label, too. The value AnyValue stands for each that no task
	// mentions. Of several values that suffice, it is AnyValue or else the first in order. If
	// Changes is not complete, one before it may suffice, too.
	AddLabel
	// RemoveLabel: Worker does not have Label.
	RemoveLabel
	// AddType: Worker handles tasks of the type Name, too.
	AddType
	// AddNamespace: Worker serves the namespace Name, too.
	AddNamespace
	// AddResource: Worker has Amount more of the resource Name, in thousandths of its
	// unit. It is the least that suffices. A larger amount may not: a task before this
	// one may take it.
	AddResource
	// AddSlots: Worker has Amount more slots. It is the least that suffices. All above
	// suffice unless shares of different resources are compared.
	AddSlots
	// Unreserve: Worker is no longer reserved for tasks that require one of its labels.
	Unreserve
	// RaiseLimit: the group of the task may have Amount attempts at once. It is the least
	// that suffices, and all above suffice.
	RaiseLimit
	// RaiseNamedLimit: the limit Name allows Amount attempts at once. It is the least that
	// suffices, and all above suffice.
	RaiseNamedLimit
	// RemoveRate: the limit Name has no rate. If it allows any number of attempts at once, it
	// allows Amount instead, because a limit has one of both: the least that suffices. A
	// higher rate is not a change: it adds tokens no sooner than after some time.
	RemoveRate
	// ResumeQueue: the queue of the task is no longer paused.
	ResumeQueue
	// RaiseMaxRunning: the queue may have Amount attempts at once. It is the least that
	// suffices, and all above suffice.
	RaiseMaxRunning
	// RaiseMax: the attempts of the queue may hold Amount of the resource Name, in
	// thousandths of its unit. It is the least that suffices.
	RaiseMax
	// DropLabel: the task does not require Label, whose value is the text of a rule if it is
	// not a single one.
	DropLabel
	// LowerDemand: the task needs at most Amount of the resource Name, in thousandths of
	// its unit; 0: none. It is the most that suffices.
	LowerDemand
	// AddWorker: another worker with Capacity joins. It is not a change of a task that has a
	// key with a worker: which worker the key has then depends on the id of the new one.
	AddWorker
	// DropAffinity: the task has no key.
	DropAffinity
)

// A Change is a single change of the fleet or of a task after which the task gets a free
// slot at once. The fields that its kind does not name are zero.
type Change struct {
	Kind     ChangeKind
	Worker   WorkerID
	Label    Label
	Name     string
	Amount   int64
	Capacity Capacity
	// Alternative is the number of the one that LowerDemand changes; 0: the Resources.
	Alternative int
}

// compareChanges orders changes by kind and worker.
func compareChanges(a, b Change) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Worker, b.Worker))
}

// Changes returns every single change of the kinds above that would start the task now,
// by kind and then by worker. complete is false if further changes may exist: docs/explain.md
// tells when. Changes are about a state in which Next has returned false: then nothing but the
// change decides, and the tasks before this one compete with it for what the change makes free,
// and for nothing else. If Fits is true, that is not the state.
//
// To start is to get a free slot. Changes after which the task would only wait at a
// worker for a slot, even ahead of others, are not listed, and neither are larger amounts
// than the least. A higher priority is never enough: a task of any priority gets a free
// slot if it fits.
func (v *TaskView) Changes() (list []Change, complete bool) {
	if v.preempting {
		return nil, false // what attempts end for starts before, and is not tried
	}
	v.group()
	switch queue := v.class.flow.queue.obstacles(v.class, v.priority); {
	case len(queue) > 1 || len(queue) == 1 && v.class.full():
		// No single change suffices.
	case len(queue) == 1:
		list = v.changeQueue(queue[0])
	case v.class.full():
		list = v.raiseFullLimit()
	default:
		v.undecided = v.undecided || v.WaitsForKey() && v.hasCompany()
		list = append(v.changeWorkers(), v.changeDemand()...)
		if c, ok := v.addWorker(); ok {
			list = append(list, c)
		}
		list = append(list, v.dropAffinity()...)
	}
	return list, !v.cut && !v.undecided
}

// changeWorkers returns the changes of one worker that has a single obstacle. One trial
// decides about all workers of a group.
func (v *TaskView) changeWorkers() (list []Change) {
	changes := make([]Change, len(v.groups)) // of kind 0: none
	var workers [DropAffinity + 1]int        // by the kind of their change
	v.spills = v.maySpillAfterChange()
	v.undecided = v.undecided || v.spills
	for i := range v.groups {
		g := &v.groups[i]
		if g.worker.kept != nil && len(g.obstacles) <= 2 {
			v.undecided = true // the task that it is kept for comes first
			continue
		}
		if len(g.obstacles) != 1 {
			continue
		}
		if c, ok := v.changeWorker(g, g.obstacles[0]); ok {
			changes[i] = c
			workers[c.Kind] += len(g.ids)
		}
	}
	for kind := AcceptTasks; kind <= AddWorker; kind++ {
		if workers[kind] == 0 {
			continue
		}
		list = slices.Grow(list, workers[kind])
		for i, g := range v.groupOf {
			if c := &changes[g]; c.Kind == kind {
				list = append(list, *c)
				list[len(list)-1].Worker = v.fleet.offers[i].id
			}
		}
	}
	return list
}

// changeWorker removes the only obstacle at a worker, and returns the change if the task
// starts then.
func (v *TaskView) changeWorker(g *workerGroup, o Obstacle) (Change, bool) {
	w := &g.worker
	t, change := v.try(w), Change{Worker: w.id, Label: o.Label, Name: o.Name}
	t.equal = len(g.ids)
	switch o.Kind {
	case NotAccepting:
		change.Kind = AcceptTasks
	case LabelMissing, LabelNotOneOf:
		change.Kind = AddLabel
		label, ok := t.changeLabel(o)
		change.Label = label
		return change, ok
	case LabelForbidden:
		change.Kind = RemoveLabel
		return change, t.removeLabel(o)
	case TypeMissing:
		change.Kind = AddType
		t.w.types = mergeSorted(w.types, []typeID{v.class.typ})
	case NamespaceMissing:
		change.Kind = AddNamespace
		t.w.serves = mergeSorted(w.serves, []namespaceID{v.class.namespace})
	case WorkerReserved:
		change.Kind = Unreserve
		t.w.dedicated = false
	case ResourceShort:
		change.Kind = AddResource
		found := v.decides(&change, func() (ok bool) {
			change.Amount, ok = t.leastResource(v.class, o)
			return ok
		})
		return change, found
	case NoFreeSlot:
		change.Kind = AddSlots
		found := v.decides(&change, func() (ok bool) {
			change.Amount, ok = t.leastSlots()
			return ok
		})
		return change, found
	case GroupFull, LimitFull, RateExceeded, QueuePaused, QueueFull, QueueShort, WorkerKept:
		return change, false // not of a worker
	}
	return change, t.starts()
}

// decides reports whether trials of several amounts found one, and all of them were decided:
// otherwise a lower amount may suffice.
func (v *TaskView) decides(c *Change, found func() bool) bool {
	before := v.undecided
	v.undecided = false
	ok := found()
	if v.undecided || v.spills {
		v.undecided = true
		v.unsure = append(v.unsure, *c)
		return false
	}
	v.undecided = before
	return ok
}

// mergeSorted returns the sorted union of two lists, of which the first is sorted.
func mergeSorted[T labelID | typeID | namespaceID](a, b []T) []T {
	out := append(slices.Clone(a), b...)
	slices.Sort(out)
	return slices.Compact(out)
}

// raiseFullLimit returns the change of the only limit that is full, of the task's group or
// a named one.
func (v *TaskView) raiseFullLimit() []Change {
	full := slices.DeleteFunc(slices.Clone(v.class.limits), func(l *namedLimit) bool { return !l.full() })
	switch {
	case len(full) == 0:
		g := v.class.group
		limit := g.limit
		g.limit = math.MaxUint32
		defer func() { g.limit = limit }()
		return v.raiseLimit(Change{Kind: RaiseLimit, Amount: int64(g.held)})
	case len(full) > 1 && !v.class.groupFull() && !slices.ContainsFunc(full[1:], func(l *namedLimit) bool { return !l.isLike(full[0]) }):
		v.undecided = true // one change is about all keys of a limit
		return nil
	case len(full) > 1 || v.class.groupFull() || full[0].paused || full[0].hasMost() && full[0].empty():
		return nil
	}
	l := full[0]
	for _, a := range slices.Concat(v.ahead, v.limited) {
		if a.class != v.class && (a.class.usesLimit(l) || a.class.waitsForLike(l)) && !v.isNext(&a) {
			v.undecided = true // tasks of other classes are not compared
			return nil
		}
	}
	before := *l
	defer func() { l.running, l.rated = before.running, before.rated }()
	l.running = 0
	if !before.empty() {
		return v.raiseLimit(Change{Kind: RaiseNamedLimit, Name: l.name, Amount: int64(l.held)})
	}
	l.rated = false
	list := v.raiseLimit(Change{Kind: RemoveRate, Name: l.name, Amount: int64(l.held)})
	switch {
	case len(list) == 0 || before.running == 0:
		return list
	case list[0].Amount > int64(before.running):
		return nil // it would be full before
	}
	list[0].Amount = 0
	return list
}

// raiseLimit returns the least limit with which the task starts, while that is unlimited:
// the tasks of its class before it start first, and no others. The amount of the change is
// what counts now.
func (v *TaskView) raiseLimit(change Change) []Change {
	free, most, avoided, avoids := int64(0), int64(0), int64(0), v.avoid != 0
	for _, a := range v.ahead {
		avoids = avoids || a.class == v.class && a.avoids()
	}
	for i := range v.groups {
		g := &v.groups[i]
		switch w := &g.worker; {
		case !w.ranked():
		case w.id == v.avoid && v.class.prefetchable: // it is a group of its own
			avoided = w.freeSlotsFor(v.class)
		default:
			n := w.freeSlotsFor(v.class)
			free, most = free+n*int64(len(g.ids)), max(most, n)
		}
	}
	before, ok := v.beforeInGroup()
	if v.class.affinity != nil && before > 0 {
		n, known := v.keyedFree(before)
		free, most, v.undecided = n, n, v.undecided || !known
	}
	v.undecided = v.undecided || v.agedKeyed(v.class.flow.queue, before+1) ||
		before > 0 && (v.retried || v.passesOver(v.starts+uint64(before))) || //nolint:gosec // G115: positive
		free > before && free-most <= before && v.mayKeepForOlder(before) // the worker with most free slots may be kept
	switch {
	case v.cut || v.undecided || !ok:
		return nil
	case before > 0 && v.class.alternatives != nil:
		v.undecided = true // those before it may take other alternatives
		return nil
	case before == 0 && !v.placed(v.class):
		return nil
	case before > 0 && free <= before:
		// A task may wait elsewhere rather than start at the worker that it avoids.
		v.undecided = avoids && v.class.prefetchable && free+avoided > 0
		return nil
	}
	change.Amount += before + 1
	return []Change{change}
}

// mayKeepForOlder reports whether a worker may be kept free, or quota saved, for a task of another
// class of the task's queue, at a turn by age, while n tasks of its own class start.
func (v *TaskView) mayKeepForOlder(n int64) bool {
	q := v.class.flow.queue
	keeps, saves := q.kept == nil && !q.wants, q.saving == nil && q.hasQuotas()
	return (keeps || saves) && int64(q.turn)+n >= agedStart && slices.ContainsFunc(v.ahead, func(a aheadQueue) bool {
		return a.class != v.class && a.class.flow.queue == q && (saves && !a.class.full() || a.class.mayStart(a.priority)) && (len(a.seqs) == 0 || a.seqs[0] < v.seq)
	})
}

// beforeInGroup returns how many tasks of the task's class start before it while the limit
// that held them back does not, and whether the quotas of its queue let it start
// then.
func (v *TaskView) beforeInGroup() (before int64, ok bool) {
	_, labels := v.labelOffers() // that of the first choice is as good as any
	w := &worker{slots: MaxSlots, labels: labels[0]}
	for _, n := range v.class.needs {
		for int(n.resource) >= len(w.total) {
			w.total = append(w.total, 0)
		}
		w.total[n.resource] = MaxAmount
	}
	t := v.try(w)
	t.only = v.class
	ok = t.starts()
	t.only = nil
	return int64(t.w.used), ok
}

// freeSlotsFor returns how many attempts of a class get a free slot of the worker.
func (w *worker) freeSlotsFor(c *class) int64 {
	if w.used >= w.slots || !w.suits(c.shape) {
		return 0
	}
	n := int64(w.slots - w.used)
	for _, need := range c.needs {
		n = min(n, max(w.free(need.resource), 0)/need.amount)
	}
	return n
}

// changeDemand returns the changes of what the task requires. No other task competes with
// it: what fits it then fits no task before it.
func (v *TaskView) changeDemand() (list []Change) {
	if v.agedKeyed(v.class.flow.queue, 1) || v.isSavedForFirst() {
		v.undecided = true
		return nil
	}
	for i := range v.class.labels {
		c := v.class.copyDemand()
		c.labels = slices.Delete(slices.Clone(c.labels), i, i+1)
		rest := *c.demand
		rest.Labels = slices.Delete(slices.Clone(rest.Labels), i, i+1)
		c.pooled = pooled(&rest)
		if v.placed(c) {
			list = append(list, Change{Kind: DropLabel, Label: v.class.demand.Labels[i]})
		}
	}
	list = append(list, v.dropRules()...)
	for i := range v.class.needs {
		if most, ok := v.mostOf(i); ok {
			list = append(list, Change{Kind: LowerDemand, Name: v.class.demand.Resources[i].Name, Amount: most})
		}
	}
	return list
}

// mostOf returns how much of its need number i the task may have to start now.
func (v *TaskView) mostOf(i int) (most int64, ok bool) {
	if v.class.affinity != nil {
		return v.mostOfKeyed(i)
	}
	if v.isKept() {
		v.undecided = true // the worker is not kept for it any more then, and may have more
		return 0, false
	}
	without := v.class.copyDemand()
	without.needs = slices.Delete(slices.Clone(v.class.needs), i, i+1)
	for k := range v.groups {
		if w := &v.groups[k].worker; w.ranked() && w.used < w.slots && w.fitsWithSlot(without.shape) {
			most, ok = max(most, w.free(v.class.needs[i].resource)), true
		}
	}
	for _, o := range v.class.flow.queue.obstacles(v.class, v.priority) {
		if o.Kind == QueueShort && o.Resource == v.class.demand.Resources[i].Name {
			most = max(min(most, o.Free), 0)
		}
	}
	if !ok || most >= v.class.needs[i].amount { // the latter: it is not the obstacle
		return 0, false
	}
	return most, v.placed(v.needing(i, most))
}

// needing returns the class of the task with another amount of its need number i.
func (v *TaskView) needing(i int, amount int64) *class {
	c := v.class.copyDemand()
	c.needs = slices.Clone(v.class.needs)
	if c.needs[i].amount = amount; amount == 0 {
		c.needs = slices.Delete(c.needs, i, i+1)
		c.prefetchable = !c.demand.NoPrefetch && len(c.needs) == 0
	}
	return c
}

// placed reports whether Next would give a free slot to a task of a class, now and before
// all others.
func (v *TaskView) placed(c *class) bool {
	switch home := v.homeOf(c); {
	case home == 0:
		return v.placedAnywhere(c)
	case v.startsHome(home, c):
		return true
	}
	v.undecided = v.undecided || v.maySpill(c, v.seq) && v.placedAnywhere(c)
	return false
}

// placedAnywhere is placed for a task that need not wait for the worker of its key.
func (v *TaskView) placedAnywhere(c *class) bool {
	avoided, elsewhere := false, false
	v.group()
	for i := range v.groups {
		w := &v.groups[i].worker
		switch free := w.used < w.slots; {
		case !w.ranked() || !w.fits(c.shape):
		case w.id == v.avoid:
			avoided = free
		case free:
			return true
		default:
			elsewhere = true // it would wait there rather than start at the worker to avoid
		}
	}
	return avoided && !elsewhere
}

// addWorker returns the capacity of a worker that would take the task, and those before it
// that take slots of such a worker.
func (v *TaskView) addWorker() (Change, bool) {
	if home := v.homeOf(v.class); home != 0 {
		v.undecided = v.undecided || home == v.avoid // the task does not wait there, and the worker that joins may get the key
		return Change{}, false
	}
	if v.class.affinity != nil && v.class.alternatives != nil {
		v.undecided = true // which alternative tasks with its key take there depends on the id of the worker
		return Change{}, false
	}
	offers, ids := v.labelOffers()
	for i := range offers {
		if c, ok := v.addWorkerWith(offers[i], ids[i]); ok {
			return c, true
		}
	}
	// A worker that also has what another alternative needs may change the order of shares.
	v.undecided = v.undecided || len(offers) == maxOffers || v.leavesOpen() || v.class.alternatives != nil && v.mixed()
	return Change{}, false
}

// addWorkerWith is addWorker for a choice of labels.
func (v *TaskView) addWorkerWith(labels []Label, ids []labelID) (Change, bool) {
	d := v.class.demand
	w := &worker{slots: MaxSlots, labels: ids, serves: []namespaceID{v.class.namespace}}
	capacity := Capacity{Labels: labels, Namespaces: []string{d.Namespace}}
	if v.class.typ != 0 {
		w.types, capacity.Types = []typeID{v.class.typ}, []string{d.Type}
	}
	for _, n := range v.class.needs {
		for int(n.resource) >= len(w.total) {
			w.total = append(w.total, 0)
		}
		w.total[n.resource] = MaxAmount
	}
	t := v.try(&worker{})
	t.w = *w
	if !t.starts() {
		return Change{}, false
	}
	capacity.Slots = int(t.w.used) + 1
	for i, n := range v.class.needs {
		capacity.Resources = append(capacity.Resources, Quantity{Name: d.Resources[i].Name, Amount: amount(t.w.taken, n.resource) + n.amount})
	}
	// With a smaller worker than above, shares of resources compare otherwise, and the task may have
	// taken another alternative, which needs more.
	if v.mixed() || v.class.alternatives != nil {
		w.slots = t.w.used + 1
		for i, n := range v.class.needs {
			w.total[n.resource] = capacity.Resources[i].Amount
		}
		t = v.try(&worker{})
		t.w = *w
		if !t.starts() {
			v.undecided = true
			return Change{}, false
		}
	}
	if t.guessed && v.mixed() { // if fewer keys move there, others may start before, which take more
		v.undecided = true
		return Change{}, false
	}
	return Change{Kind: AddWorker, Capacity: capacity}, true
}
