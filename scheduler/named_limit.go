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
	// waiting are ready queues that wait for it, and some that did. A Release of attempts
	// without this limit does not look at them.
	waiting []*readyQueue
}

func (l *namedLimit) full() bool { return l.paused || l.running > 0 && l.held >= l.running }

// fullLimit returns the first limit that keeps the class from starting tasks, or nil.
func (c *class) fullLimit() *namedLimit {
	for _, l := range c.limits {
		if l.full() {
			return l
		}
	}
	return nil
}

// sharesLimit reports whether attempts of both classes count towards one limit.
func (c *class) sharesLimit(o *class) bool {
	return slices.ContainsFunc(c.limits, o.usesLimit)
}

func (c *class) usesLimit(l *namedLimit) bool { return slices.Contains(c.limits, l) }

// addLimits adds the limits of a new class. A new limit has no number until SetNamedLimit.
func (s *Scheduler) addLimits(c *class) {
	c.limits = nil
	for _, name := range c.demand.Uses {
		l := s.limits[name]
		if l == nil {
			s.lastLimit++
			l = &namedLimit{id: s.lastLimit, name: name, paused: s.limitsPaused}
			s.limits[name] = l
		}
		l.classes++
		c.limits = append(c.limits, l)
	}
}

// removeLimits removes the limits that a class which is recycled was the last to use.
func (s *Scheduler) removeLimits(c *class) {
	for _, l := range c.limits {
		if l.classes--; l.classes == 0 {
			delete(s.limits, l.name)
		}
	}
}

// wake returns to the order what waits for a limit. What finds the limit full again waits
// again when it is at the front.
func (s *Scheduler) wake(l *namedLimit) {
	for i, r := range l.waiting {
		s.unpark(r, byNamedLimit)
		l.waiting[i] = nil
	}
	l.waiting = l.waiting[:0]
}

// count counts an attempt of a class towards its limits.
func (c *class) count() {
	for _, l := range c.limits {
		l.held++
	}
}

// uncount undoes count.
func (s *Scheduler) uncount(c *class) {
	for _, l := range c.limits {
		wasFull := l.full()
		l.held--
		s.changed(l, wasFull)
	}
}

// changed wakes what waits for a limit if it was full and no longer is.
func (s *Scheduler) changed(l *namedLimit, wasFull bool) {
	if wasFull && !l.full() {
		s.wake(l)
	}
}

// SetNamedLimit sets how many attempts of all tasks that use a limit may run at once;
// 0 = unlimited. Attempts that are too many continue. A limit that no class uses is
// ignored: set it after Class.
func (s *Scheduler) SetNamedLimit(name string, running uint32) {
	if l := s.limits[name]; l != nil {
		wasFull := l.full()
		l.running = running
		s.changed(l, wasFull)
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
		wasFull := l.full()
		l.paused = paused
		s.changed(l, wasFull)
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
		for _, l := range c.limits {
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

// copyLimits returns the copies of limits that the classes of a view share.
func (v *TaskView) copyLimits(list []*namedLimit) []*namedLimit {
	if len(list) == 0 {
		return nil
	}
	if v.named == nil {
		v.named = make(map[*namedLimit]*namedLimit)
	}
	copies := make([]*namedLimit, len(list))
	for i, l := range list {
		if v.named[l] == nil {
			v.named[l] = &namedLimit{id: l.id, name: l.name, running: l.running, held: l.held, paused: l.paused}
		}
		copies[i] = v.named[l]
	}
	return copies
}

// Limits returns the limits of the task, by name, without what waits for them.
func (v *TaskView) Limits() (loads []LimitLoad) {
	for _, l := range v.class.limits {
		loads = append(loads, LimitLoad{Name: l.name, Running: l.running, Held: l.held, Paused: l.paused})
	}
	return loads
}
