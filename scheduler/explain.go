package scheduler

import (
	"slices"
	"strconv"
	"strings"
)

// A Verdict says whether a worker has room for a class, and if not, why not.
type WorkerFit struct {
	Worker WorkerID
	// Obstacles are all that stand in the way; none means that it fits now.
	Obstacles []Obstacle
}

// Fits reports whether the worker could take a task of the class now.
func (v WorkerFit) Fits() bool { return len(v.Obstacles) == 0 }

// An ObstacleKind says what sort of thing is missing. Zero is unset.
type ObstacleKind uint8

// The kinds of obstacles.
const (
	// NotAccepting: the worker drains, or is not attached.
	NotAccepting ObstacleKind = iota + 1
	// NoFreeSlot: Total slots, Free of them free.
	NoFreeSlot
	// LabelMissing: the worker does not have Label.
	LabelMissing
	// ResourceShort: Want of the resource Name is needed, Free of Total is free.
	ResourceShort
	// GroupFull: the group has Total attempts, as many as its limit allows.
	GroupFull
)

// An Obstacle is one reason why a worker cannot take a task.
type Obstacle struct {
	Kind  ObstacleKind
	Label Label  // LabelMissing
	Name  string // ResourceShort
	// Want, Free and Total are slots for NoFreeSlot, and thousandths of the
	// resource's unit for ResourceShort. Free is below zero where more is held
	// than there is, because the capacity shrank.
	Want, Free, Total int64
}

// String returns the obstacle as users read it, such as
// "resource gpu: 1 needed, 0.5 of 2 free".
func (o Obstacle) String() string {
	switch o.Kind {
	case NotAccepting:
		return "takes no new tasks"
	case NoFreeSlot:
		return "no free slot of " + strconv.FormatInt(o.Total, 10)
	case LabelMissing:
		return "label " + o.Label.Name + "=" + o.Label.Value + " missing"
	case ResourceShort:
		return "resource " + o.Name + ": " + thousandths(o.Want) + " needed, " +
			thousandths(o.Free) + " of " + thousandths(o.Total) + " free"
	case GroupFull:
		return "no more than " + strconv.FormatInt(o.Total, 10) + " at once"
	default:
		return "unknown obstacle"
	}
}

// Explain returns, for each worker by id, whether it has room for a task of
// this class now. It takes nothing and changes nothing. c must come from Class.
func (s *Scheduler) Explain(c ClassID) []WorkerFit {
	out := make([]WorkerFit, 0, len(s.fleet))
	for _, w := range s.fleet {
		out = append(out, WorkerFit{Worker: w.id, Obstacles: s.obstacles(w, s.classes[c])})
	}
	return out
}

func (s *Scheduler) obstacles(w *worker, c *class) []Obstacle {
	var out []Obstacle
	if !w.accepting {
		out = append(out, Obstacle{Kind: NotAccepting})
	}
	if w.used >= w.slots && (!c.ahead || w.full()) {
		out = append(out, Obstacle{Kind: NoFreeSlot, Want: 1, Free: int64(w.slots) - int64(w.used), Total: int64(w.slots)})
	}
	if c.full() {
		out = append(out, Obstacle{Kind: GroupFull, Want: 1, Total: int64(c.limit)})
	}
	for i, l := range c.labels {
		if _, ok := slices.BinarySearch(w.labels, l); !ok {
			out = append(out, Obstacle{Kind: LabelMissing, Label: c.demand.Labels[i]})
		}
	}
	for i, n := range c.needs {
		total := w.totalOf(n.resource)
		if free := total - w.takenOf(n.resource); n.amount > free {
			out = append(out, Obstacle{
				Kind: ResourceShort, Name: c.demand.Resources[i].Name,
				Want: n.amount, Free: free, Total: total,
			})
		}
	}
	return out
}

// thousandths writes an amount in its unit: 1500 is "1.5".
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
