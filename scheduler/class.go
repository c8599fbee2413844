package scheduler

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// A class is an interned Demand with its ready tasks. What each start reads is first.
type class struct {
	*shape

	id     ClassID
	number uint8 // its position in alternatives
	yields bool  // Demand.Preemptible
	flow   *flow // nil: the number is unused

	alternatives []*class  // those of its demand, itself included; nil: it has no others
	affinity     *affinity // nil: it has no key
	limits       []*namedLimit
	group        *group // nil: without limit
	held         uint32 // attempts on all workers, and reserved ones
	uses         uint32 // calls of Class and Retain without one of Retire

	queues [Urgent + 1]readyQueue // by priority; 0 stays empty

	demand *Demand // normal form, for View
	key    string  // in Scheduler.classOf
}

// A group bounds the attempts of a class, together with those of its alternatives.
type group struct {
	limit uint32 // > 0
	held  uint32 // attempts on all workers, and reserved ones
}

// A shape is what a demand requires of a worker: that of all classes which differ only in
// their flow or limit.
type shape struct {
	needs        []need
	labels       []labelID
	rules        []labelRule
	prefer       []labelRule
	place        Strategy
	typ          typeID // 0: none is required
	namespace    namespaceID
	prefetchable bool // its tasks may wait at a worker for a slot
	pooled       bool // a label is required that is not that of a secret

	key     string // in Scheduler.shapes
	classes int    // that exist and have it

	runs WorkerID // one that could run it when couldRun looked last; 0: none is known
	gate          // blocked: no worker has capacity, and it is in Scheduler.blocked

	// eligible are the workers that have the labels and, when idle, the
	// resources. It is valid while version is that of the Scheduler.
	eligible []*worker
	version  uint64
	// preferred are those of eligible that fulfill prefer.
	preferred []*worker
	homes     homeList
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

// Class returns the class of tasks with this demand, and counts a use of it until Retire.
// Equal demands have one class; the empty demand has class 0, which is never recycled. A
// class takes about half a kilobyte. Demands must be few beside tasks: each change of
// capacity checks all blocked ones, whatever their flow and limit.
func (s *Scheduler) Class(d Demand) ClassID {
	exact, rules := normalRules(d.Rules)
	d.Resources, d.Rules = normalQuantities(d.Resources, MaxAmount+1), rules
	d.Uses = normalNames(d.Uses)
	d.Labels = normalLabels(slices.Concat(d.Labels, exact))
	d.Rules = withoutImplied(d.Rules, d.Labels)
	d.Prefer = normalPreferences(d.Prefer)
	d.NoPrefetch = d.NoPrefetch || len(d.Uses) > 0 || len(d.Alternatives) > 0
	if d.Limit == 0 {
		d.Group = TaskRef{}
	}
	if len(d.Alternatives) > 0 {
		return s.classWithAlternatives(d)
	}
	c, isNew := s.classFor(&d, nil, 0)
	if isNew && d.Limit > 0 {
		c.group = &group{limit: d.Limit}
	}
	c.uses++
	return c.id
}

// classFor returns the class of a demand in normal form, the one with a number of those whose
// resources are lists; nil: it has no alternatives. isNew: it did not exist.
func (s *Scheduler) classFor(d *Demand, lists [][]Quantity, number uint8) (c *class, isNew bool) {
	s.key = appendShape(s.key[:0], d)
	end := len(s.key)
	s.key = appendAlternatives(appendFlow(s.key, d), lists, number)
	if id, ok := s.classOf[string(s.key)]; ok {
		return s.classes[id], false
	}
	c = s.newClass()
	kept := *d
	c.demand, c.number, c.yields, c.key = &kept, number, d.Preemptible, string(s.key)
	c.flow, c.shape = s.flow(d), s.shape(s.key[:end], d)
	c.affinity = newAffinity(d)
	c.flow.classes++
	s.addLimits(c)
	c.shape.classes++
	s.classOf[c.key] = c.id
	return c, true
}

// shape returns the shape of a demand in normal form.
func (s *Scheduler) shape(key []byte, d *Demand) *shape {
	if sh := s.shapes[string(key)]; sh != nil {
		return sh
	}
	sh := &shape{key: string(key)}
	for _, q := range d.Resources {
		sh.needs = append(sh.needs, need{intern(s.resources, q.Name), q.Amount})
	}
	for _, l := range d.Labels {
		sh.labels = append(sh.labels, s.labelID(l))
	}
	sh.rules, sh.prefer, sh.place = s.labelRules(d.Rules), s.labelRules(d.Prefer), d.Place
	sh.pooled = pooled(d)
	if d.Type != "" {
		sh.typ = s.typeID(d.Type)
	}
	sh.namespace = s.namespaceID(d.Namespace)
	sh.prefetchable = !d.NoPrefetch && len(sh.needs) == 0
	s.shapes[sh.key] = sh
	return sh
}

// pooled reports whether a demand requires a label that is not that of a secret. A rule that
// excludes values requires none.
func pooled(d *Demand) bool {
	return slices.ContainsFunc(d.Labels, func(l Label) bool { return !strings.HasSuffix(l.Name, ":") }) ||
		slices.ContainsFunc(d.Rules, func(r LabelRule) bool { return !r.Not })
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

// appendShape encodes what a demand in normal form requires of a worker. Different
// requirements have different encodings: its length precedes every string, and a bar ends
// the resources.
func appendShape(b []byte, d *Demand) []byte {
	if d.NoPrefetch {
		b = append(b, '!')
	}
	if d.Namespace != "" {
		b = appendString(append(b, '@'), d.Namespace)
	}
	for _, q := range d.Resources {
		b = appendString(b, q.Name)
		b = append(strconv.AppendInt(b, q.Amount, 10), ' ')
	}
	b = appendString(append(b, '|'), d.Type)
	for _, l := range d.Labels {
		b = appendString(appendString(b, l.Name), l.Value)
	}
	b = appendRules(b, d.Rules)
	if d.Place != Spread {
		b = strconv.AppendUint(append(b, '^'), uint64(d.Place), 10)
	}
	if len(d.Prefer) > 0 {
		b = appendRules(append(b, '~'), d.Prefer)
	}
	return append(b, '|')
}

// appendFlow encodes the rest of a demand.
func appendFlow(b []byte, d *Demand) []byte {
	b = appendString(appendString(b, d.Queue), d.Owner)
	if d.Limit > 0 {
		b = strconv.AppendUint(append(b, '#'), uint64(d.Limit), 10)
		b = strconv.AppendUint(append(b, ','), d.Group.Job, 10)
		b = strconv.AppendUint(append(b, ','), uint64(d.Group.Index), 10)
	}
	for _, name := range d.Uses {
		b = appendString(append(b, '%'), name)
	}
	if d.Affinity != "" {
		b = appendString(append(b, '&'), d.Affinity)
	}
	if d.Preemptible {
		b = append(b, '-')
	}
	return b
}

func appendString(b []byte, s string) []byte {
	b = append(strconv.AppendInt(b, int64(len(s)), 10), ':')
	return append(b, s...)
}
