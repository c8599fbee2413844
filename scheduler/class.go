package scheduler

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// A class is an interned Demand with its ready tasks.
type class struct {
	id     ClassID
	demand Demand // normal form, for Explain

	needs        []need
	labels       []labelID
	typ          typeID // 0: none is required
	namespace    namespaceID
	prefetchable bool // its tasks may wait at a worker for a slot

	uses    []*namedLimit
	awaits  *namedLimit // it waits in the list of this limit; nil: it does not
	limit   uint32      // 0 = none
	held    uint32      // attempts on all workers, and reserved ones
	retired bool        // recycled after its last attempt
	key     string      // of a limited class in Scheduler.classOf

	queues  [Urgent + 1]readyQueue // by priority; 0 stays empty
	blocked bool                   // it is in Scheduler.blocked, or waits for a limit

	// eligible are the workers that have the labels and, when idle, the
	// resources. It is valid while version is that of the Scheduler.
	eligible []*worker
	version  uint64
}

type (
	resourceID uint32
	labelID    uint32
	typeID     uint32 // from 1

	namespaceID uint32 // 0: the empty name
)

type need struct {
	resource resourceID
	amount   int64 // > 0
}

// Class returns the class of tasks with this demand. Equal demands have one
// class; the empty demand has class 0. The Scheduler keeps every class, about
// half a kilobyte, and each change of capacity checks all blocked classes:
// demands must be few beside tasks. Classes with a limit or named limits, of which
// each job may have its own, are removed with Retire.
func (s *Scheduler) Class(d Demand) ClassID {
	d.Resources, d.Labels, d.Uses = normalQuantities(d.Resources, MaxAmount+1), normalLabels(d.Labels), normalNames(d.Uses)
	if d.Limit == 0 {
		d.Group = TaskRef{}
	}
	s.key = appendDemand(s.key[:0], d)
	if id, ok := s.classOf[string(s.key)]; ok {
		s.classes[id].retired = false
		return id
	}
	c := s.newClass(d.Limit > 0 || len(d.Uses) > 0)
	c.demand, c.limit, c.retired = d, d.Limit, false
	if s.use(c, d.Uses); c.isLimited() {
		c.key = string(s.key)
	}
	for _, q := range d.Resources {
		c.needs = append(c.needs, need{intern(s.resources, q.Name), q.Amount})
	}
	for _, l := range d.Labels {
		c.labels = append(c.labels, intern(s.labels, l))
	}
	if d.Type != "" {
		c.typ = s.typeID(d.Type)
	}
	c.namespace = s.namespaceID(d.Namespace)
	c.prefetchable = !d.NoPrefetch && len(c.needs) == 0 && len(c.uses) == 0
	s.classOf[string(s.key)] = c.id
	return c.id
}

// initQueues gives a new class its empty queues.
func (c *class) initQueues() {
	for p := Low; p <= Urgent; p++ {
		c.queues[p] = readyQueue{class: c, priority: p, pos: -1}
	}
}

// typeID returns the number of a type of task.
func (s *Scheduler) typeID(name string) typeID { return intern(s.types, name) + 1 }

// namespaceID returns the number of a namespace.
func (s *Scheduler) namespaceID(name string) namespaceID {
	if name == "" {
		return 0
	}
	return intern(s.namespaces, name) + 1
}

// intern returns the number of a name, and numbers a new one.
func intern[K comparable, ID ~uint32](known map[K]ID, name K) ID {
	id, ok := known[name]
	if !ok {
		id = ID(len(known)) //nolint:gosec // G115: names are far fewer than 2^32
		known[name] = id
	}
	return id
}

// normalQuantities returns a copy that is sorted by name, with one positive
// amount per name, at most limit.
func normalQuantities(in []Quantity, limit int64) []Quantity {
	if len(in) == 0 {
		return nil
	}
	sorted := slices.SortedStableFunc(slices.Values(in), func(a, b Quantity) int { return strings.Compare(a.Name, b.Name) })
	out := sorted[:0]
	for _, q := range sorted {
		if q.Amount <= 0 {
			continue
		}
		q.Amount = min(q.Amount, limit)
		if last := len(out) - 1; last >= 0 && out[last].Name == q.Name {
			out[last].Amount = min(out[last].Amount+q.Amount, limit) // no overflow: both are at most 2^60+1
			continue
		}
		out = append(out, q)
	}
	return out
}

// normalLabels returns a sorted copy without duplicates.
func normalLabels(in []Label) []Label {
	if len(in) == 0 {
		return nil
	}
	sorted := slices.SortedFunc(slices.Values(in), func(a, b Label) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
	})
	return slices.Compact(sorted)
}

// normalNames returns a sorted copy without duplicates.
func normalNames(in []string) []string {
	if len(in) == 0 {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(in)))
}

// appendDemand encodes a demand in normal form. Different demands have
// different encodings: its length precedes every string, and a bar ends the
// resources.
func appendDemand(b []byte, d Demand) []byte {
	if d.NoPrefetch {
		b = append(b, '!')
	}
	if d.Limit > 0 {
		b = strconv.AppendUint(append(b, '#'), uint64(d.Limit), 10)
		b = strconv.AppendUint(append(b, ','), d.Group.Job, 10)
		b = append(strconv.AppendUint(append(b, ','), uint64(d.Group.Index), 10), ' ')
	}
	if d.Namespace != "" {
		b = appendString(append(b, '@'), d.Namespace)
	}
	for _, name := range d.Uses {
		b = appendString(append(b, '%'), name)
	}
	for _, q := range d.Resources {
		b = appendString(b, q.Name)
		b = append(strconv.AppendInt(b, q.Amount, 10), ' ')
	}
	b = appendString(append(b, '|'), d.Type)
	for _, l := range d.Labels {
		b = appendString(appendString(b, l.Name), l.Value)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	b = append(strconv.AppendInt(b, int64(len(s)), 10), ':')
	return append(b, s...)
}
