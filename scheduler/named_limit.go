package scheduler

import (
	"maps"
	"slices"
)

// limitID numbers the named limits that classes use. Numbers are not used again.
type limitID uint64

// A namedLimit bounds the attempts of all classes that use it together. It exists while a
// class does.
type namedLimit struct {
	id      limitID
	name    string
	running uint32 // attempts at once; 0 = unlimited
	held    uint32 // attempts on all workers, and reserved ones
	paused  bool   // nothing starts: see PauseLimits
	classes int    // that use it
	// waiting are the classes with tasks that wait for it. They are not in
	// Scheduler.blocked, so that a Release of other attempts does not look at them.
	waiting []*class
}

func (l *namedLimit) full() bool { return l.paused || l.running > 0 && l.held >= l.running }

// fullLimit returns the first limit that keeps the class from starting tasks, or nil.
func (c *class) fullLimit() *namedLimit {
	for _, l := range c.uses {
		if l.full() {
			return l
		}
	}
	return nil
}

// sharesLimit reports whether attempts of both classes count towards one limit.
func (c *class) sharesLimit(o *class) bool {
	return slices.ContainsFunc(c.uses, func(l *namedLimit) bool { return o.usesLimit(l.id) })
}

func (c *class) usesLimit(id limitID) bool {
	return slices.ContainsFunc(c.uses, func(l *namedLimit) bool { return l.id == id })
}

// use adds the limits of a new class. A new limit has no number until SetNamedLimit.
func (s *Scheduler) use(c *class, names []string) {
	for _, name := range names {
		l := s.limits[name]
		if l == nil {
			s.lastLimit++
			l = &namedLimit{id: s.lastLimit, name: name, paused: s.limitsPaused}
			s.limits[name] = l
		}
		l.classes++
		c.uses = append(c.uses, l)
	}
}

// unuse ends the use of its limits by a class that holds nothing and has no tasks.
func (s *Scheduler) unuse(c *class) {
	for _, l := range c.uses {
		if l.classes--; l.classes == 0 {
			delete(s.limits, l.name)
		}
	}
}

// await removes a class from the order until a limit is no longer full.
func (s *Scheduler) await(c *class, l *namedLimit) {
	c.blocked, c.awaits = true, l
	l.waiting = append(l.waiting, c)
	s.relistAll(c)
}

// wake returns the classes that wait for a limit to the order. Those for which nothing is
// left wait again when Next reaches them.
func (s *Scheduler) wake(l *namedLimit) {
	for i, c := range l.waiting {
		c.blocked, c.awaits, l.waiting[i] = false, nil, nil
		s.relistAll(c)
	}
	l.waiting = l.waiting[:0]
}

// take counts an attempt of a class.
func (c *class) take() {
	c.held++
	for _, l := range c.uses {
		l.held++
	}
}

// giveBack undoes take for the limits of a class.
func (s *Scheduler) giveBack(c *class) {
	for _, l := range c.uses {
		s.changeLimit(l, func() { l.held-- })
	}
}

// changeLimit changes a limit, and wakes what waits for it if it is no longer full.
func (s *Scheduler) changeLimit(l *namedLimit, change func()) {
	wasFull := l.full()
	if change(); wasFull && !l.full() {
		s.wake(l)
	}
}

// SetNamedLimit sets how many attempts of all tasks that use a limit may run at once;
// 0 = unlimited. Attempts that are too many continue. A limit that no class uses is
// ignored: set it after Class.
func (s *Scheduler) SetNamedLimit(name string, running uint32) {
	if l := s.limits[name]; l != nil {
		s.changeLimit(l, func() { l.running = running })
	}
}

// NamedLimits returns the names of the limits that classes use, sorted.
func (s *Scheduler) NamedLimits() []string { return slices.Sorted(maps.Keys(s.limits)) }

// PauseLimits keeps all tasks with a limit from starting, or lets them start again. A new
// leader does not know at first how many attempts count.
func (s *Scheduler) PauseLimits(paused bool) {
	s.limitsPaused = paused
	for _, name := range s.NamedLimits() {
		l := s.limits[name]
		s.changeLimit(l, func() { l.paused = paused })
	}
}

// A LimitLoad is what counts towards a limit, and waits for it.
type LimitLoad struct {
	Name    string
	Running uint32 // its value; 0 = unlimited
	Held    uint32 // attempts, and reserved ones
	Waiting int    // entries, including those that are no longer valid and not dropped yet
	Paused  bool
}

// LimitLoads returns the loads of all limits that classes use, by name. It looks at all
// classes.
func (s *Scheduler) LimitLoads() []LimitLoad {
	waiting := make(map[limitID]int)
	for _, c := range s.classes {
		for _, l := range c.uses {
			for p := Low; p <= Urgent; p++ {
				waiting[l.id] += c.queues[p].n
			}
		}
	}
	var loads []LimitLoad
	for _, name := range s.NamedLimits() {
		l := s.limits[name]
		loads = append(loads, LimitLoad{Name: name, Running: l.running, Held: l.held, Waiting: waiting[l.id], Paused: l.paused})
	}
	return loads
}

// copyLimits returns copies of limits without what waits for them.
func copyLimits(list []*namedLimit) []*namedLimit {
	if len(list) == 0 {
		return nil
	}
	copies := make([]*namedLimit, len(list))
	for i, l := range list {
		copies[i] = &namedLimit{id: l.id, name: l.name, running: l.running, held: l.held, paused: l.paused}
	}
	return copies
}

// Limits returns the limits of the task, by name, without what waits for them.
func (v *TaskView) Limits() (loads []LimitLoad) {
	for _, l := range v.class.uses {
		loads = append(loads, LimitLoad{Name: l.name, Running: l.running, Held: l.held, Paused: l.paused})
	}
	return loads
}

// counts are attempts in a trial or a simulation, beside those that were held before.
type counts struct {
	classes map[ClassID]uint32
	limits  map[limitID]uint32
}

func (n *counts) full(c *class) bool {
	if c.limit > 0 && c.held+n.classes[c.id] >= c.limit {
		return true
	}
	for _, l := range c.uses {
		if l.paused || l.running > 0 && l.held+n.limits[l.id] >= l.running {
			return true
		}
	}
	return false
}

func (n *counts) add(c *class) {
	if c.limit > 0 {
		if n.classes == nil {
			n.classes = make(map[ClassID]uint32)
		}
		n.classes[c.id]++
	}
	for _, l := range c.uses {
		if n.limits == nil {
			n.limits = make(map[limitID]uint32)
		}
		n.limits[l.id]++
	}
}
