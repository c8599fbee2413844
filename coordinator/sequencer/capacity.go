package sequencer

import (
	"cmp"
	"slices"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// Capacity is what decides whether a task gets a free slot: the tasks before it, and the
// workers.
type Capacity struct {
	Higher, Earlier uint64 // tasks of higher priority before it, and earlier ones of its own
	AtLeast         bool   // Earlier is a lower bound

	// QueuesAhead are other queues with tasks that may start whose share is smaller, and
	// OwnersAhead other owners in the queue with such tasks of the priority.
	QueuesAhead, OwnersAhead uint64

	Queue       []Obstacle  // why its queue lets it not start now
	Limit, Held uint32      // attempts of its array that may run at once, 0 = any number; and that do
	Limits      []LimitLoad // named ones of the task, the full ones with their holders
	Affinity    Affinity
	Waits       bool // nothing but its affinity keeps it from starting on an idle worker
	Fits        bool // a worker could take it now, maybe to wait there for a slot
	Starts      bool // it would get a free slot now if it were ready
	EverFits    bool // a worker that accepts tasks could take it if that were idle

	// Groups has all workers that are up, by obstacles, the largest group first.
	Groups []WorkerGroup
	// Changes are all single changes after which it gets a slot at once; none if Fits is
	// true. Complete: there are no others.
	Changes  []StartChange
	Complete bool
}

// An Obstacle is why a worker can't take a task. A Code is a stable word: package api has
// the list of them.
type Obstacle struct {
	Code, Name, Value string
	// Want, Free and Total are slots, or thousandths of the unit of a resource. Varies: Free
	// and Total are those of the worker of the group that has most free.
	Want, Free, Total int64
	Varies            bool
	// Alternative is the number, from 1, of the alternative that it is about; 0: of all.
	Alternative int
	// Saved is how much of a quota is saved for SavedFor, an older task of the queue.
	Saved    int64
	SavedFor fsm.TaskRef
}

// A WorkerGroup has workers with the same obstacles, apart from their Free and Total;
// without any, the task fits.
type WorkerGroup struct {
	Obstacles []Obstacle
	Workers   []fsm.WorkerID // ascending
}

// A StartChange is a single change of a worker, of the task or of the cluster.
type StartChange struct {
	Code, Name, Value string
	Worker            fsm.WorkerID // 0 = of none
	// Amount is in slots, attempts, or thousandths of the unit of a resource.
	Amount int64
	// Alternative is the number, from 1, of the one whose demand it changes; 0: of none.
	Alternative int
	// New is the worker that joins.
	New *NewWorker
}

// NewWorker is what a worker that joins must offer.
type NewWorker struct {
	Slots     int
	Type      string // empty: none
	Namespace string
	Labels    []fsm.Label    // secrets included, with the key fsm.SecretLabel
	Resources []fsm.Resource // in thousandths of their units
}

// newCapacity reads the views of a task. down has the workers that accept no tasks.
func newCapacity(v scheduler.TaskViews, down map[scheduler.WorkerID]refusal, sees func(fsm.WorkerID) bool) *Capacity {
	at := v[0].Position()
	c := &Capacity{Higher: at.Higher, Earlier: at.Earlier, AtLeast: at.AtLeast, Waits: v.WaitsForKey(), Fits: v.Fits(), Starts: v.Starts(), EverFits: v.EverFits()}
	c.QueuesAhead, c.OwnersAhead = v[0].BeforeByShare()
	c.Limit, c.Held = v[0].Group()
	c.Limits, c.Affinity = limitLoads(v[0]), showAffinity(v.KeyWorker())
	for _, o := range v.Queue() {
		c.Queue = append(c.Queue, showQueueObstacle(o))
	}
	c.group(v.Groups(), down, sees)
	if c.Complete = true; c.Fits {
		return c
	}
	var changes []scheduler.Change
	changes, c.Complete = v.Changes()
	for i := range changes {
		x, ok := showChange(&changes[i], down[changes[i].Worker])
		if len(v) > 1 && changes[i].Kind == scheduler.LowerDemand {
			x.Alternative = changes[i].Alternative + 1
		}
		if ok && (x.Worker == 0 || sees(x.Worker)) {
			c.Changes = append(c.Changes, x)
		}
	}
	return c
}

// group groups the workers that the caller may see by their obstacles.
func (c *Capacity) group(list []scheduler.WorkerGroup, down map[scheduler.WorkerID]refusal, sees func(fsm.WorkerID) bool) {
	x := grouping{c: c, known: make(map[string]int)}
	for _, g := range list {
		// Workers that accept no tasks are one group each, for there are several reasons.
		accepting := !slices.ContainsFunc(g.Obstacles, func(o scheduler.Obstacle) bool { return o.Kind == scheduler.NotAccepting })
		at := -1
		for _, id := range g.Workers {
			if !sees(fsm.WorkerID(id)) {
				continue
			}
			if at < 0 || !accepting {
				at = x.find(showObstacles(g.Obstacles, down[id]))
			}
			c.Groups[at].Workers = append(c.Groups[at].Workers, fsm.WorkerID(id))
		}
	}
	for _, g := range c.Groups {
		slices.Sort(g.Workers)
	}
	slices.SortStableFunc(c.Groups, func(a, b WorkerGroup) int {
		return cmp.Or(cmp.Compare(len(b.Workers), len(a.Workers)), cmp.Compare(a.Workers[0], b.Workers[0]))
	})
}

// A grouping finds the group of a worker.
type grouping struct {
	c     *Capacity
	known map[string]int
	key   []byte
}

// find returns the number of the group of workers with these obstacles.
func (x *grouping) find(obstacles []Obstacle) int {
	key := x.key[:0]
	for _, o := range obstacles {
		// The length of a part does not matter: no name has a NUL.
		key = append(append(append(append(append(append(key, o.Code...), 0), o.Name...), 0), o.Value...), 0)
		key = append(key, byte(o.Alternative)) //nolint:gosec // at most fsm.MaxAlternatives+1
		if o.Total == 0 {
			key = append(key, '0')
		}
	}
	x.key = key
	at, known := x.known[string(key)]
	if !known {
		at = len(x.c.Groups)
		x.known[string(key)] = at
		x.c.Groups = append(x.c.Groups, WorkerGroup{Obstacles: obstacles})
	}
	g := &x.c.Groups[at]
	for i := range obstacles {
		g.Obstacles[i].include(&obstacles[i])
	}
	return at
}

// include adds the same obstacle at another worker.
func (o *Obstacle) include(x *Obstacle) {
	if o.Free == x.Free && o.Total == x.Total {
		return
	}
	o.Varies = true
	if x.Free > o.Free {
		o.Free, o.Total = x.Free, x.Total
	}
}

// showQueueObstacle returns an obstacle of a queue. The name of the queue is its Value.
func showQueueObstacle(o scheduler.Obstacle) Obstacle {
	x := Obstacle{
		Value: cmp.Or(o.Name, fsm.DefaultQueue), Want: o.Want, Free: o.Free, Total: o.Total, Alternative: o.Alternative,
		Saved: o.Saved, SavedFor: fsm.TaskRef{Job: fsm.JobID(o.SavedFor.Job), Index: o.SavedFor.Index},
	}
	switch o.Kind { //nolint:exhaustive // only those of queues
	case scheduler.QueuePaused:
		x.Code = "queue_paused"
	case scheduler.QueueFull:
		x.Code = "queue_full"
	default:
		x.Code, x.Name = "queue_short", o.Resource
	}
	return x
}

// showObstacles returns the obstacles at one worker. Limits and the queue are
// the same at all workers, and left out, apart from a quota that holds back one of several
// alternatives.
func showObstacles(list []scheduler.Obstacle, why refusal) []Obstacle {
	var shown []Obstacle
	for _, o := range list {
		x := Obstacle{Name: o.Name, Want: o.Want, Free: o.Free, Total: o.Total, Alternative: o.Alternative}
		switch o.Kind {
		case scheduler.NotAccepting:
			shown = append(shown, why.obstacles()...)
			continue
		case scheduler.GroupFull, scheduler.LimitFull, scheduler.RateExceeded, scheduler.QueuePaused, scheduler.QueueFull:
			continue
		case scheduler.QueueShort:
			if o.Alternative == 0 {
				continue
			}
			x = showQueueObstacle(o)
		case scheduler.WorkerReserved:
			x.Code = "worker_reserved"
		case scheduler.WorkerKept:
			x.Code, x.Name, x.Value = "worker_kept", "", cmp.Or(o.Name, fsm.DefaultQueue)
		case scheduler.NoFreeSlot:
			x.Code = "no_free_slot"
		case scheduler.TypeMissing:
			x.Code = "type_missing"
		case scheduler.LabelMissing:
			x.Code, x.Name, x.Value = "label_missing", o.Label.Name, o.Label.Value
			if isSecret(o.Label) {
				x.Code, x.Name, x.Value = "secret_missing", o.Label.Value, ""
			}
		case scheduler.LabelNotOneOf:
			x.Code, x.Name, x.Value = "label_not_one_of", o.Label.Name, o.Label.Value
		case scheduler.LabelForbidden:
			x.Code, x.Name, x.Value = "label_excluded", o.Label.Name, o.Label.Value
		case scheduler.ResourceShort:
			x.Code = "resource_short"
		case scheduler.NamespaceMissing:
			x.Code = "namespace_missing"
		}
		shown = append(shown, x)
	}
	return shown
}

// obstacles returns why the worker accepts no tasks.
func (r refusal) obstacles() (list []Obstacle) {
	if r.drains {
		list = append(list, Obstacle{Code: "worker_drains"})
	}
	if r.detached {
		list = append(list, Obstacle{Code: "worker_not_connected"})
	}
	if r.leaving {
		list = append(list, Obstacle{Code: "worker_shuts_down"})
	}
	return list
}

func isSecret(l scheduler.Label) bool { return l.Name == secretLabel("").Name }

// showChange returns a change as users make it; ok is false for a worker that accepts no
// tasks for two reasons, because it shuts down, or for
// a label that workers have by themselves.
func showChange(c *scheduler.Change, why refusal) (shown StartChange, ok bool) {
	shown = StartChange{Name: c.Name, Worker: fsm.WorkerID(c.Worker), Amount: c.Amount}
	if c.Label.Name != "" {
		shown.Name, shown.Value = c.Label.Name, c.Label.Value
	}
	if c.Worker != 0 && fsm.IsAutomaticLabel(c.Label.Name) {
		return shown, false // nobody can change it
	}
	secret := isSecret(c.Label)
	if secret {
		shown.Name, shown.Value = c.Label.Value, ""
	}
	switch c.Kind {
	case scheduler.AcceptTasks:
		switch why {
		case refusal{drains: true}:
			shown.Code = "undrain_worker"
		case refusal{detached: true}:
			shown.Code = "connect_worker"
		default:
			return shown, false
		}
	case scheduler.AddLabel:
		shown.Code = "add_label"
		if secret {
			shown.Code = "add_secret"
		}
	case scheduler.RemoveLabel:
		shown.Code = "remove_label"
	case scheduler.AddType:
		shown.Code = "add_type"
	case scheduler.AddNamespace:
		shown.Code = "add_namespace"
	case scheduler.AddResource:
		shown.Code = "add_resource"
	case scheduler.AddSlots:
		shown.Code = "add_slots"
	case scheduler.Unreserve:
		shown.Code = "unreserve_worker"
	case scheduler.RaiseLimit:
		shown.Code = "raise_max_parallel"
	case scheduler.RaiseNamedLimit:
		shown.Code = "raise_limit"
	case scheduler.RemoveRate:
		shown.Code = "remove_rate"
	case scheduler.ResumeQueue:
		shown.Code, shown.Name, shown.Value = "resume_queue", "", cmp.Or(c.Name, fsm.DefaultQueue)
	case scheduler.RaiseMaxRunning:
		shown.Code, shown.Name, shown.Value = "raise_max_running", "", cmp.Or(c.Name, fsm.DefaultQueue)
	case scheduler.RaiseMax:
		shown.Code = "raise_max"
	case scheduler.DropLabel:
		shown.Code = "drop_label"
		if secret {
			shown.Code = "drop_secret"
		}
	case scheduler.LowerDemand:
		shown.Code = "lower_resource"
	case scheduler.AddWorker:
		shown.Code, shown.New = "add_worker", newWorkerOf(c.Capacity)
	case scheduler.DropAffinity:
		shown.Code = "drop_affinity"
	}
	return shown, true
}

func newWorkerOf(c scheduler.Capacity) *NewWorker {
	n := &NewWorker{Slots: c.Slots}
	if len(c.Types) > 0 {
		n.Type = c.Types[0]
	}
	if len(c.Namespaces) > 0 {
		n.Namespace = c.Namespaces[0]
	}
	for _, l := range c.Labels {
		if isSecret(l) {
			l.Name = fsm.SecretLabel
		}
		n.Labels = append(n.Labels, fsm.Label{Key: l.Name, Value: l.Value})
	}
	for _, q := range c.Resources {
		n.Resources = append(n.Resources, fsm.Resource{Name: q.Name, Amount: q.Amount})
	}
	return n
}
