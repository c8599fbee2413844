package scheduler

import (
	"cmp"
	"slices"
)

// A Queue is the settings of a queue. The zero value is that of a queue that was not set:
// weight 1, without quotas.
type Queue struct {
	// Weight is the share of the cluster that the queue gets, beside those of other queues
	// with ready tasks; 0 = 1.
	Weight uint32
	// MaxRunning is the maximum number of attempts of all tasks of the queue; 0 = unlimited.
	MaxRunning uint32
	// Max is the most that attempts of the queue may hold of some resources.
	Max []Quantity
	// Paused: no task of the queue starts.
	Paused bool
}

// A queue orders the flows of the owners that have tasks in it.
type queue struct {
	name   string
	weight uint32 // ≥ 1
	limit  uint32 // of attempts; 0 = none
	max    []quota
	paused bool
	set    bool // by SetQueue

	held   usage           // by attempts of its tasks, also those that no worker is known to hold
	flows  map[owner]*flow // never ranged over
	keyed  heap[keyAge]    // ready queues that wait for the workers of their keys, oldest first
	byAge  heap[flowAge]   // flows with listed ready queues, and some without: see oldestReady
	turn   uint32          // starts since the last one by age
	served uint64          // number of its last start
	pos    int32           // in Scheduler.byShare; -1 if no task of it may start
	passed uint64          // number of the last start when it was added to Scheduler.passed
	passes bool            // it is in Scheduler.passed
	wants  bool            // it is in Scheduler.wants
	kept   *reservation    // a worker that is kept free for one of its tasks
	saving *saving         // what is kept of its quotas for one of its tasks
	// preempting is a worker that is kept for an urgent task, for which attempts end there.
	preempting *reservation
	yields     int // attempts on all workers that give their places to urgent tasks

	overtakes bool              // see Scheduler.markOvertakers
	watched   func(*readyQueue) // is called with what a quota holds back; mostly nil

	wanted reservation // while wants is set: its task, with a worker that had capacity for it, if any

	over      listWaits   // the first ready queues that its quotas hold back
	overParts []*waitPart // and others
	parts     []*waitPart // those of its ready queues that wait for capacity; some are empty
	open      []*waitPart // those of all kinds with ready queues whose gates are open

	ready [Urgent + 1]turns[*flow] // by priority: flows with listed ready queues
}

type quota struct {
	resource resourceID
	amount   uint64
}

// An owner names a flow within a queue.
type owner struct{ namespace, name string }

// A flow has the ready tasks of one owner in one queue. Shares are counted for it. What each
// start and each end reads is first.
type flow struct {
	queue   *queue
	held    usage
	served  uint64            // number of its last start
	pos     [Urgent + 1]int32 // by priority: in queue.ready; -1 if nothing is listed
	agePos  int32             // in queue.byAge; -1 if absent
	waits   []*flowWaits      // its ready queues that wait in parts
	levels  [Urgent + 1]level
	owner   owner
	classes int // that exist
}

// A level has the ready queues of one flow and priority.
type level struct {
	flow  *flow
	ready heap[readyAge] // listed ones, that with the oldest task first
}

// A flowAge is a flow in the order of age. Its age is at most the seq of its oldest listed task.
type flowAge struct {
	age uint64
	*flow
}

// An orderKey orders queues, and the owners of a queue: by share, and among equals the
// least recently served first.
//
// Invariant: the key in a heap is at most the present one. Starts only increase the
// present one, and are ignored until the element is at the front, where the key is
// compared with the present one. Ends of attempts decrease it, which is applied at once
// if the key in the heap would be above it.
type orderKey struct {
	share  share
	weight uint32
	served uint64
}

func (k *orderKey) compare(o *orderKey) int {
	switch {
	case k.share.total != o.share.total || k.weight != o.weight:
		if c := compareShares(k.share, k.weight, o.share, o.weight); c != 0 {
			return c
		}
	case k.share.amount != o.share.amount: // mostly: shares of slots
		return cmp.Compare(k.share.amount, o.share.amount)
	}
	return cmp.Compare(k.served, o.served)
}

func (k *orderKey) before(o *orderKey) bool { return k.compare(o) < 0 }

func (q *queue) before(o *queue) bool { return q.name < o.name }

func (f *flow) before(o *flow) bool { return f.owner.before(o.owner) }

func (o owner) before(x owner) bool {
	if o.namespace != x.namespace {
		return o.namespace < x.namespace
	}
	return o.name < x.name
}

func (f flowAge) before(o flowAge) bool {
	if f.age != o.age {
		return f.age < o.age
	}
	return f.owner.before(o.owner) // both are older than what they have
}

func (f flowAge) setPos(pos int) { f.agePos = int32(pos) } //nolint:gosec // G115: owners are far fewer

// full reports whether a quota lets no further task of the queue start.
func (q *queue) full() bool { return q.limit > 0 && q.held.slots >= uint64(q.limit) }

// allows reports whether the quotas let the first task of a class and priority start, beside what
// they are saved for. Without a saving, the one on running tasks is that of full.
func (q *queue) allows(c *class, p Priority) bool { return q.leaves(c.shape, q.savedBeside(c, p)) }

// leaves reports whether the quotas leave enough for a task of a shape, beside what is saved.
func (q *queue) leaves(c *shape, saved *saving) bool {
	if saved != nil && q.limit > 0 && q.held.slots+1 >= uint64(q.limit) {
		return false
	}
	for _, m := range q.max {
		for _, n := range c.needs {
			if n.resource == m.resource && q.held.of(n.resource)+saved.of(n.resource)+uint64(n.amount) > m.amount { //nolint:gosec // positive
				return false
			}
		}
	}
	return true
}

// limits reports whether tasks of a class take any of what the quotas on resources are about.
func (q *queue) limits(c *class) bool {
	for _, m := range q.max {
		for _, n := range c.needs {
			if n.resource == m.resource {
				return true
			}
		}
	}
	return false
}

// mayStart reports whether nothing but missing capacity holds back the first task of a class and
// priority.
func (c *class) mayStart(p Priority) bool {
	q := c.flow.queue
	return !q.paused && !q.full() && !c.full() && q.allows(c, p)
}

// SetQueue sets or replaces the settings of a queue, which take effect at the next start.
// Attempts above a smaller quota continue.
func (s *Scheduler) SetQueue(name string, to Queue) {
	q := s.queue(name)
	q.set = true
	s.configure(q, to)
}

// RemoveQueue returns a queue to the settings of one that was not set.
func (s *Scheduler) RemoveQueue(name string) {
	if q := s.queues[name]; q != nil {
		q.set = false
		s.configure(q, Queue{})
		s.forget(q)
	}
}

func (s *Scheduler) configure(q *queue, to Queue) {
	var most []quota
	for _, x := range normalQuantities(to.Max, MaxAmount+1) {
		most = append(most, quota{intern(s.resources, x.Name), uint64(x.Amount)}) //nolint:gosec // positive
	}
	// A program may set the same again and again, or another weight, more often than a worker that
	// is kept free gets capacity.
	if q.limit != to.MaxRunning || q.paused != to.Paused || !slices.Equal(q.max, most) {
		if q.kept != nil {
			s.unkeep(q.kept)
		}
	}
	q.weight, q.limit, q.paused, q.max = max(to.Weight, 1), to.MaxRunning, to.Paused, most
	if x := q.saving; x != nil && (q.paused || !q.hasQuotas() || !q.mayAllow(x.ready.class.shape)) {
		s.unsave(q)
	}
	s.unparkOver(q)
	s.reshare = true
	s.relistQueue(q)
}

// queue returns a queue, which exists as soon as it is named.
func (s *Scheduler) queue(name string) *queue {
	q := s.queues[name]
	if q == nil {
		q = &queue{name: name, weight: 1, pos: -1, flows: make(map[owner]*flow)}
		s.queues[name] = q
	}
	return q
}

// flow returns the flow of a demand.
func (s *Scheduler) flow(d *Demand) *flow {
	q, o := s.queue(d.Queue), owner{d.Namespace, d.Owner}
	f := q.flows[o]
	if f == nil {
		f = &flow{queue: q, owner: o, agePos: -1}
		for p := Low; p <= Urgent; p++ {
			f.levels[p].flow, f.pos[p] = f, -1
		}
		q.flows[o] = f
	}
	return f
}

// removeClass removes a flow with its last class, and a queue with its last flow: names of
// owners come and go.
func (s *Scheduler) removeClass(f *flow) {
	if f.classes--; f.classes > 0 {
		return
	}
	if f.agePos >= 0 {
		f.queue.byAge.remove(int(f.agePos))
	}
	delete(f.queue.flows, f.owner)
	s.forget(f.queue)
}

func (s *Scheduler) forget(q *queue) {
	if len(q.flows) == 0 && !q.set {
		q.passes = false
		q.wants = false
		is := func(x *queue) bool { return x == q }
		s.passed, s.wants, s.saving = slices.DeleteFunc(s.passed, is), slices.DeleteFunc(s.wants, is), slices.DeleteFunc(s.saving, is)
		q.dropParts()
		delete(s.queues, q.name)
	}
}

// QueueLoad is what is ready and held of one queue.
type QueueLoad struct {
	Waiting int // entries, as in Depth
	Running int // attempts that were assigned and have not ended
}

// Loads returns the load of each queue that is set or has had tasks. It reads all classes.
func (s *Scheduler) Loads() map[string]QueueLoad {
	loads := make(map[string]QueueLoad, len(s.queues))
	// unordered: the result is a map
	for name, q := range s.queues {
		loads[name] = QueueLoad{Running: int(q.held.slots)} //nolint:gosec // far fewer than 2^63
	}
	for _, c := range s.classes {
		if c.flow == nil || c.number > 0 {
			continue
		}
		l := loads[c.flow.queue.name]
		for p := Low; p <= Urgent; p++ {
			l.Waiting += c.queues[p].n
		}
		loads[c.flow.queue.name] = l
	}
	return loads
}
