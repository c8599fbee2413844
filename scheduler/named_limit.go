package scheduler

import (
	"cmp"
	"maps"
	"slices"
	"strings"
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
	rated   bool   // each start takes a token
	tokens  uint32 // starts that the rate allows now
	spent   uint32 // tokens taken since the last Spent
	classes int    // that use it
	// waiting are the first ready queues that wait for it, and gate has the parts for others. A
	// Release of attempts without this limit does not look at them.
	waiting listWaits
	gate
}

// full reports whether the limit keeps tasks from starting.
func (l *namedLimit) full() bool { return l.paused || l.hasMost() || l.empty() }

// hasMost reports whether as many attempts count as may run at once.
func (l *namedLimit) hasMost() bool { return l.running > 0 && l.held >= l.running }

// empty reports whether the rate allows no start now.
func (l *namedLimit) empty() bool { return l.rated && l.tokens == 0 }

// fullLimit returns the first limit that keeps the class from starting tasks, or nil.
func (c *class) fullLimit() *namedLimit {
	for _, l := range c.limits {
		if l.full() {
			return l
		}
	}
	return nil
}

func (c *class) usesLimit(l *namedLimit) bool { return slices.Contains(c.limits, l) }

// waitsForLike reports whether a class waits for another limit with the settings of l.
func (c *class) waitsForLike(l *namedLimit) bool {
	return slices.ContainsFunc(c.limits, func(o *namedLimit) bool { return o != l && o.isLike(l) && o.full() })
}

// isLike reports whether two limits have the same settings: they are keys after the slash of one.
func (l *namedLimit) isLike(o *namedLimit) bool {
	name, _, keyed := strings.Cut(l.name, "/")
	other, _, also := strings.Cut(o.name, "/")
	return keyed && also && name == other
}

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

// hasRate reports whether a limit of the class has a rate.
func (c *class) hasRate() bool {
	return slices.ContainsFunc(c.limits, func(l *namedLimit) bool { return l.rated })
}

// take takes a token of each limit with a rate for an attempt that starts.
func (s *Scheduler) take(c *class) {
	for _, l := range c.limits {
		if !l.rated {
			continue
		}
		if l.spent == 0 {
			s.spent = append(s.spent, l)
		}
		l.tokens--
		l.spent++
	}
}

// Spent calls f for each limit of which tokens were taken since the last call, in the order
// of the first, with their number and what is left.
func (s *Scheduler) Spent(f func(name string, taken, left uint32)) {
	for i, l := range s.spent {
		f(l.name, l.spent, l.tokens)
		l.spent, s.spent[i] = 0, nil
	}
	s.spent = s.spent[:0]
}

// changed wakes what waits for a limit if it was full and no longer is.
func (s *Scheduler) changed(l *namedLimit, wasFull bool) {
	if wasFull && !l.full() {
		s.wake(l)
	}
}

// UsesLimits reports whether attempts of a class count towards named limits.
func (s *Scheduler) UsesLimits(id ClassID) bool { return len(s.classes[id].limits) > 0 }

// SetTokens gives a limit a rate: tasks that use it start only while it has tokens, and each
// takes one. The caller adds those of the time that passes. A limit that no class uses is
// ignored: set it after Class.
func (s *Scheduler) SetTokens(name string, tokens uint32) {
	if l := s.limits[name]; l != nil {
		wasFull := l.full()
		l.rated, l.tokens = true, tokens
		s.changed(l, wasFull)
	}
}

// RemoveRate undoes SetTokens.
func (s *Scheduler) RemoveRate(name string) {
	if l := s.limits[name]; l != nil {
		wasFull := l.full()
		l.rated, l.tokens = false, 0
		s.changed(l, wasFull)
	}
}

// Tokens returns how many tasks the rate of a limit lets start now. ok is false for a limit
// without rate, and one that no class uses.
func (s *Scheduler) Tokens(name string) (tokens uint32, ok bool) {
	l := s.limits[name]
	if l == nil || !l.rated {
		return 0, false
	}
	return l.tokens, true
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
	Rated   bool   // each start takes a token
	Tokens  uint32 // starts that the rate allows now
	Waiting int    // entries, including those that are no longer valid and not dropped yet
	Paused  bool
}

// LimitLoads returns the loads of all limits that classes use, by name. It looks at all
// classes.
func (s *Scheduler) LimitLoads() []LimitLoad {
	waiting := make(map[limitID]int)
	for _, c := range s.classes {
		if c.number > 0 {
			continue
		}
		for _, l := range c.limits {
			for p := Low; p <= Urgent; p++ {
				waiting[l.id] += c.queues[p].n
			}
		}
	}
	var loads []LimitLoad
	for _, name := range s.NamedLimits() {
		l := s.limits[name]
		load := l.load()
		load.Waiting = waiting[l.id]
		loads = append(loads, load)
	}
	return loads
}

func (l *namedLimit) load() LimitLoad {
	return LimitLoad{Name: l.name, Running: l.running, Held: l.held, Rated: l.rated, Tokens: l.tokens, Paused: l.paused}
}

// limitCopies are the copies of named limits that the copies of classes share, by original.
type limitCopies map[*namedLimit]*namedLimit

func (m limitCopies) of(list []*namedLimit) []*namedLimit {
	if len(list) == 0 {
		return nil
	}
	copies := make([]*namedLimit, len(list))
	for i, l := range list {
		if m[l] == nil {
			m[l] = &namedLimit{id: l.id, name: l.name, running: l.running, held: l.held, paused: l.paused, rated: l.rated, tokens: l.tokens}
		}
		copies[i] = m[l]
	}
	return copies
}

// Limits returns the limits of the task, by name, without what waits for them.
func (v *TaskView) Limits() (loads []LimitLoad) {
	for _, l := range v.class.limits {
		loads = append(loads, l.load())
	}
	return loads
}

// LimitHolders returns the tasks, in order, whose attempts count towards a limit; none if
// ViewRunning was not called.
func (v *TaskView) LimitHolders(limit string) (tasks []TaskRef) {
	if v.running == nil {
		return nil
	}
	for i := range v.running.attempts {
		a := &v.running.attempts[i]
		if slices.Contains(v.running.classes[a.Class].demand.Uses, limit) {
			tasks = append(tasks, a.Task)
		}
	}
	slices.SortFunc(tasks, func(a, b TaskRef) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Index, b.Index))
	})
	return slices.Compact(tasks)
}
