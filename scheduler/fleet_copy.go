package scheduler

import "slices"

// An offerList has what the workers of one version of a Scheduler offer, by id. It is
// copied when the version has changed since, and TaskViews share it: nothing in it changes.
type offerList struct {
	version uint64
	list    []offer
}

// An offer is what a worker offers.
type offer struct {
	id    WorkerID
	slots uint32
	// dedicated: it is reserved for tasks that require one of its labels.
	dedicated bool
	labels    []labelID
	types     []typeID
	serves    []namespaceID
	total     []int64
}

// A workerLoad is what changes of a worker with each assignment.
type workerLoad struct {
	used      uint32
	taken     uint32 // where its list in fleetCopy.taken begins
	prefetch  uint32
	turn      uint64
	kept      *keptFor // nil: it is kept free for no task
	ranked    bool
	accepting bool
	full      bool
}

// A keptFor is the task that a worker is kept free for.
type keptFor struct {
	queue    string
	class    ClassID
	first    ClassID // that of class.first
	priority Priority
	seq      uint64
	task     TaskRef // not set if it waits no more
}

// A fleetCopy is a copy of all workers, by id.
type fleetCopy struct {
	offers []offer
	loads  []workerLoad
	taken  []int64 // of all workers
}

// maxTakenEach is how many resources of each worker a copy makes room for beforehand: to
// count them takes as long as to copy them.
const maxTakenEach = 8

func (s *Scheduler) copyFleet() fleetCopy {
	f := fleetCopy{
		offers: s.copyOffers(), loads: make([]workerLoad, len(s.sorted)), taken: make([]int64, 0, len(s.sorted)*min(len(s.resources), maxTakenEach)),
	}
	for i, w := range s.sorted {
		f.loads[i] = workerLoad{
			used: w.used, taken: uint32(len(f.taken)), //nolint:gosec // workers and resources are far fewer
			prefetch: w.prefetch, turn: w.turn, ranked: w.ranked(), accepting: w.accepting, full: w.full(),
		}
		if k := w.kept; k != nil {
			kept := &keptFor{queue: k.queue, class: k.ready.class.id, first: k.ready.class.first().id, priority: k.ready.priority, seq: k.seq}
			if k.ready.n > 0 && k.ready.front().seq == k.seq {
				kept.task = k.ready.front().task()
			}
			f.loads[i].kept = kept
		}
		f.taken = append(f.taken, w.taken...)
	}
	return f
}

// copyOffers returns what the workers offer. A worker that changes gets new lists.
func (s *Scheduler) copyOffers() []offer {
	if s.offers.version != s.version {
		list := make([]offer, len(s.sorted))
		for i, w := range s.sorted {
			list[i] = offer{id: w.id, slots: w.slots, dedicated: w.dedicated, labels: w.labels, types: w.types, serves: w.serves, total: w.total}
		}
		s.offers = offerList{version: s.version, list: list}
	}
	return s.offers.list
}

// takenOf returns what the attempts at a worker take.
func (f *fleetCopy) takenOf(i int) []int64 {
	end := len(f.taken)
	if i+1 < len(f.loads) {
		end = int(f.loads[i+1].taken)
	}
	return f.taken[f.loads[i].taken:end:end]
}

// worker returns worker number i, without what it holds by class. It is full, or takes one
// attempt that waits, as the real one.
func (f *fleetCopy) worker(i int) worker {
	o, l := &f.offers[i], &f.loads[i]
	w := worker{
		id: o.id, slots: o.slots, used: l.used, accepting: l.accepting, reserved: l.full, pos: -1,
		dedicated: o.dedicated, labels: o.labels, types: o.types, serves: o.serves, total: o.total, taken: f.takenOf(i),
	}
	if l.kept != nil {
		w.kept = &reservation{queue: l.kept.queue}
	}
	if l.ranked {
		w.pos = 0
	}
	if !l.full && l.used >= o.slots {
		w.prefetch = l.used - o.slots + 1
	}
	return w
}

// whole returns worker number i as it was, for a fork. What it holds by class is left out.
func (f *fleetCopy) whole(i int) worker {
	l := &f.loads[i]
	w := f.worker(i)
	w.taken, w.prefetch, w.turn, w.kept, w.pos = slices.Clone(w.taken), l.prefetch, l.turn, nil, -1
	w.reserved = l.full && w.used >= w.slots && w.used < w.slots+w.prefetch
	return w
}

// A workerGroup has workers that don't differ in anything that the task of a TaskView, or
// one before it, needs: what starts the task at one of them starts it at each. One worker
// stands for all.
type workerGroup struct {
	worker    worker
	ids       []WorkerID // ascending
	obstacles []Obstacle
}

// group groups the workers. The worker to avoid is a group of its own.
func (v *TaskView) group() {
	if v.groupOf != nil {
		return
	}
	relevant := v.relevant()
	known := make(map[string]uint32)
	v.groupOf = make([]uint32, len(v.fleet.loads))
	var key []byte
	for i := range v.fleet.loads {
		key = relevant.append(key[:0], &v.fleet, i)
		switch id := v.fleet.offers[i].id; {
		case v.keyed != nil: // keys distinguish them
			key = appendNumber(key[:0], int64(i))
		case id == v.avoid:
			key = append(key, 1)
		}
		g, ok := known[string(key)]
		if !ok {
			g = uint32(len(v.groups)) //nolint:gosec // at most one for each worker
			known[string(key)] = g
			w := v.fleet.worker(i)
			v.groups = append(v.groups, workerGroup{worker: w, obstacles: w.obstacles(v.class, v.priority)})
		}
		v.groupOf[i] = g
		v.groups[g].ids = append(v.groups[g].ids, v.fleet.offers[i].id)
	}
}

// A relevance is what a task, and those before it, can need of a worker.
type relevance struct {
	labels    []labelID
	types     []typeID
	serves    []namespaceID
	resources []resourceID
}

// relevant returns what makes a difference between workers.
func (v *TaskView) relevant() *relevance {
	r := &relevance{}
	r.add(v.class)
	for i := range v.ahead {
		r.add(v.ahead[i].class)
	}
	r.sort()
	return r
}

// sort sorts what was added, and drops duplicates.
func (r *relevance) sort() {
	r.labels, r.types, r.serves, r.resources = distinct(r.labels), distinct(r.types), distinct(r.serves), distinct(r.resources)
}

func (r *relevance) add(c *class) {
	r.labels = append(r.labels, c.labels...)
	for i := range c.rules {
		r.labels = append(r.labels, c.rules[i].values...)
	}
	if c.typ != 0 {
		r.types = append(r.types, c.typ)
	}
	r.serves = append(r.serves, c.namespace)
	for _, n := range c.needs {
		r.resources = append(r.resources, n.resource)
	}
}

func distinct[T labelID | typeID | namespaceID | resourceID](list []T) []T {
	slices.Sort(list)
	return slices.Compact(list)
}

// append appends what is relevant of a worker. Different workers get different bytes.
func (r *relevance) append(b []byte, f *fleetCopy, i int) []byte {
	o, l := &f.offers[i], &f.loads[i]
	b = appendNumber(appendNumber(b, int64(o.slots)), int64(l.used))
	b = append(b, flags(l.ranked, l.accepting, l.full, o.types == nil, o.serves == nil, o.dedicated, l.kept != nil))
	if l.kept != nil {
		b = append(appendNumber(b, int64(len(l.kept.queue))), l.kept.queue...)
	}
	for _, x := range r.labels {
		b = append(b, flags(contains(o.labels, x)))
	}
	for _, x := range r.types {
		b = append(b, flags(contains(o.types, x)))
	}
	for _, x := range r.serves {
		b = append(b, flags(contains(o.serves, x)))
	}
	taken := f.takenOf(i)
	for _, x := range r.resources {
		b = appendNumber(appendNumber(b, amount(o.total, x)), amount(taken, x))
	}
	return b
}

// appendNumber appends a number in 1 to 10 bytes, as a varint of Protocol Buffers: no
// number's bytes begin with those of another.
func appendNumber(b []byte, n int64) []byte {
	u := uint64(n)<<1 ^ uint64(n>>63) //nolint:gosec // zigzag
	for ; u >= 0x80; u >>= 7 {
		b = append(b, byte(u)|0x80)
	}
	return append(b, byte(u))
}

// contains reports whether a sorted list has a value.
func contains[T labelID | typeID | namespaceID](list []T, x T) bool {
	_, ok := slices.BinarySearch(list, x)
	return ok
}

func flags(facts ...bool) (b byte) {
	for i, x := range facts {
		if x {
			b |= 1 << i
		}
	}
	return b
}
