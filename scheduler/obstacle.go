package scheduler

import (
	"slices"
	"strconv"
	"strings"
)

// A WorkerFit is whether a worker has capacity for a class, and why not.
type WorkerFit struct {
	Worker WorkerID
	// Obstacles are all reasons why it doesn't fit now; none means that it
	// does.
	Obstacles []Obstacle
}

// Fits reports whether the worker could take a task of the class now.
func (f WorkerFit) Fits() bool { return len(f.Obstacles) == 0 }

// A WorkerGroup has workers with equal obstacles.
type WorkerGroup struct {
	Workers   []WorkerID // by id; at least one
	Obstacles []Obstacle // none: they could take the task now
}

// An ObstacleKind is what is missing. Zero is unset.
type ObstacleKind uint8

// The kinds of obstacles.
const (
	// NotAccepting: the worker drains, or has no session.
	NotAccepting ObstacleKind = iota + 1
	// NoFreeSlot: Total slots, Free of them free.
	NoFreeSlot
	// TypeMissing: the worker does not handle tasks of the type Name.
	TypeMissing
	// LabelMissing: the worker does not have Label, whose value may be AnyValue.
	LabelMissing
	// ResourceShort: Want of the resource Name is required, Free of Total is
	// free.
	ResourceShort
	// NamespaceMissing: the worker does not serve the namespace Name.
	NamespaceMissing
	// GroupFull: the group has Total attempts, which is its limit.
	GroupFull
	// LimitFull: the limit Name has Total attempts, which is all that it allows, or starts
	// nothing yet.
	LimitFull
	// RateExceeded: the rate of the limit Name lets no task start now.
	RateExceeded
	// QueuePaused: nothing of the queue Name starts.
	QueuePaused
	// QueueFull: the queue Name has Total attempts, which is its quota.
	QueueFull
	// QueueShort: Want of a resource is required, Free of Total is left of the quota of the
	// queue Name on Resource.
	QueueShort
	// WorkerReserved: the worker gets only tasks that require one of its labels.
	WorkerReserved
	// WorkerKept: the worker is kept free for another task, of the queue Name.
	WorkerKept
	// LabelNotOneOf: the worker has none of the values of Label, which is the text of a
	// rule.
	LabelNotOneOf
	// LabelForbidden: the worker has Label, which a rule forbids.
	LabelForbidden
)

// An Obstacle is one reason why a worker cannot take a task.
type Obstacle struct {
	Kind  ObstacleKind
	Label Label  // LabelMissing, LabelNotOneOf, LabelForbidden
	Name  string // ResourceShort, TypeMissing, NamespaceMissing, LimitFull, RateExceeded, those of queues and WorkerKept
	// Resource is that of QueueShort.
	Resource string
	// Want, Free and Total are slots for NoFreeSlot, and thousandths of the
	// resource's unit for ResourceShort. Free is negative if more is taken than
	// there is, because the capacity shrank.
	Want, Free, Total int64
	// Saved is how much of a quota is saved for SavedFor, an older task of the queue.
	Saved    int64
	SavedFor TaskRef
	// Alternative is the number, from 1, of the one that lacks the resource; 0: of a task
	// without alternatives.
	Alternative int
}

// String returns the obstacle as users read it, such as "resource gpu: 1
// required, 0.5 of 2 free".
func (o Obstacle) String() string {
	switch o.Kind {
	case NotAccepting:
		return "not accepting tasks"
	case NoFreeSlot:
		return "all " + strconv.FormatInt(o.Total, 10) + " slots in use"
	case TypeMissing:
		return "does not handle type " + o.Name
	case NamespaceMissing:
		return "does not serve namespace " + strconv.Quote(o.Name)
	case LabelMissing, LabelNotOneOf:
		return "label " + o.Label.Name + "=" + o.Label.Value + " missing"
	case LabelForbidden:
		return "label " + o.Label.Name + "=" + o.Label.Value + " excluded"
	case ResourceShort:
		return "resource " + o.Name + ": " + thousandths(o.Want) + " required, " +
			thousandths(o.Free) + " of " + thousandths(o.Total) + " free"
	case GroupFull:
		return "limit of " + strconv.FormatInt(o.Total, 10) + " concurrent attempts reached"
	case RateExceeded:
		return "rate of limit " + o.Name + " reached"
	case LimitFull:
		return "limit " + o.Name + " of " + strconv.FormatInt(o.Total, 10) + " concurrent attempts reached"
	case QueuePaused:
		return "queue " + queueName(o.Name) + " is paused"
	case QueueFull:
		return "queue " + queueName(o.Name) + ": quota of " + strconv.FormatInt(o.Total, 10) + " running tasks reached" + o.saved("1")
	case QueueShort:
		left := o.Free
		if o.Saved > 0 {
			left = max(left, 0)
		}
		return "queue " + queueName(o.Name) + ": " + o.Resource + ": " + thousandths(o.Want) + " required, " +
			thousandths(left) + " left of its quota of " + thousandths(o.Total) + o.saved(thousandths(o.Saved))
	case WorkerReserved:
		return "reserved for tasks that require one of its labels"
	case WorkerKept:
		return "kept free for a task of queue " + queueName(o.Name)
	default:
		return "unknown obstacle"
	}
}

// saved returns the part of a sentence about what is saved of a quota.
func (o Obstacle) saved(amount string) string {
	if o.Saved == 0 {
		return ""
	}
	return ", with " + amount + " saved for an older task"
}

// queueName returns the name of a queue as users read it.
func queueName(name string) string {
	if name == "" {
		return "default"
	}
	return name
}

// obstacles returns why the queue lets the first task of a class and priority not start.
func (q *queue) obstacles(c *class, p Priority) (out []Obstacle) {
	if q.paused {
		out = append(out, Obstacle{Kind: QueuePaused, Name: q.name})
	}
	beside := q.savedBeside(c, p)
	switch {
	case q.full():
		out = append(out, Obstacle{Kind: QueueFull, Name: q.name, Want: 1, Total: int64(q.limit)})
	case beside != nil && q.limit > 0 && q.held.slots+1 >= uint64(q.limit):
		out = append(out, Obstacle{Kind: QueueFull, Name: q.name, Want: 1, Total: int64(q.limit), Saved: 1, SavedFor: beside.task})
	}
	for _, m := range q.max {
		for i, n := range c.needs {
			saved := int64(beside.of(m.resource))                                                                            //nolint:gosec // at most MaxAmount
			if left := int64(m.amount) - int64(q.held.of(m.resource)) - saved; n.resource == m.resource && n.amount > left { //nolint:gosec // at most MaxAmount
				o := Obstacle{Kind: QueueShort, Name: q.name, Resource: c.demand.Resources[i].Name, Want: n.amount, Free: left, Total: int64(m.amount)} //nolint:gosec // at most MaxAmount
				if saved > 0 {
					o.Saved, o.SavedFor = saved, beside.task
				}
				out = append(out, o)
			}
		}
	}
	return out
}

// obstacles returns why the worker can't take the first task of a class and priority now.
func (w *worker) obstacles(c *class, p Priority) []Obstacle {
	var out []Obstacle
	if !w.accepting {
		out = append(out, Obstacle{Kind: NotAccepting})
	}
	if !w.hasSlot(c.shape) || c.affinity != nil && w.used >= w.slots { // with a key, it would be prefetched if it could
		out = append(out, Obstacle{Kind: NoFreeSlot, Want: 1, Free: int64(w.slots) - int64(w.used), Total: int64(w.slots)})
	}
	if c.groupFull() {
		out = append(out, Obstacle{Kind: GroupFull, Want: 1, Total: int64(c.group.limit)})
	}
	for _, l := range c.limits {
		if l.paused || l.hasMost() {
			out = append(out, Obstacle{Kind: LimitFull, Name: l.name, Want: 1, Total: int64(l.running)})
		}
		if l.empty() {
			out = append(out, Obstacle{Kind: RateExceeded, Name: l.name, Want: 1})
		}
	}
	out = append(out, c.flow.queue.obstacles(c, p)...)
	if w.dedicated && !c.pooled {
		out = append(out, Obstacle{Kind: WorkerReserved})
	}
	if w.kept != nil {
		out = append(out, Obstacle{Kind: WorkerKept, Name: w.kept.queue})
	}
	if !w.handles(c.typ) {
		out = append(out, Obstacle{Kind: TypeMissing, Name: c.demand.Type})
	}
	if !w.servesNamespace(c.namespace) {
		out = append(out, Obstacle{Kind: NamespaceMissing, Name: c.demand.Namespace})
	}
	for i, l := range c.labels {
		if _, ok := slices.BinarySearch(w.labels, l); !ok {
			out = append(out, Obstacle{Kind: LabelMissing, Label: c.demand.Labels[i]})
		}
	}
	out = w.ruleObstacles(c, out)
	for i, n := range c.needs {
		if free := w.free(n.resource); n.amount > free {
			out = append(out, Obstacle{
				Kind: ResourceShort, Name: c.demand.Resources[i].Name,
				Want: n.amount, Free: free, Total: amount(w.total, n.resource),
			})
		}
	}
	return out
}

// thousandths formats an amount in its unit: 1500 is "1.5".
func thousandths(n int64) string {
	sign := ""
	if n < 0 {
		sign, n = "-", -n
	}
	whole, rest := strconv.FormatInt(n/1000, 10), n%1000
	if rest == 0 {
		return sign + whole
	}
	digits := strconv.FormatInt(1000+rest, 10)[1:]
	return sign + whole + "." + strings.TrimRight(digits, "0")
}
