package sequencer

import (
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/calendar"
)

// LateAfter is the lateness above which a tick is missed.
const LateAfter = 10 * time.Second

const (
	// missedInterval separates missed ticks that run, over all schedules: at most 20 per
	// second.
	missedInterval = 50 * time.Millisecond
	// blockedRetry is how often ticks are tried again that can't fire now.
	blockedRetry = 50 * time.Millisecond
	// armedAtOnce is how many schedules get their calendars and timers together after a
	// term has started or the wall clock was set, every armInterval: what is due meanwhile
	// waits some milliseconds. One with many times counts for more: see armCost.
	armedAtOnce = 128
	armInterval = time.Millisecond
	// maxTickTimer is how far ahead timers of ticks are set: timers can't be removed, and
	// are set again whenever the wall clock has moved.
	maxTickTimer = time.Hour
)

// schedules fires the ticks of schedules when they are due. Which ticks were decided is in
// the replicated state; here are only calendars, and a timer for the next tick of each
// schedule.
type schedules struct {
	cfg        *Config
	timers     *timers
	uploads    *uploads
	byID       map[fsm.ScheduleID]*schedule
	unarmed    []fsm.ScheduleID // they get their timers soon
	blocked    []*schedule      // due, but can't fire now; each at most once
	retrying   bool             // there is a timer for these two
	nextMissed time.Time        // when the next missed tick may run, by the monotonic clock
	searches   searches         // for missed ticks
	offset     clockOffset      // when the timers were set
}

// schedule is the soft state of a schedule.
type schedule struct {
	id       fsm.ScheduleID
	version  uint32
	calendar *calendar.Schedule // nil: invalid in this version of dtask
	due      int64              // ms; start of the tick that its timer is for; 0 = no timer
	timer    time.Time          // when its timer fires: those that were set before have no effect; zero = no timer
	timerDue int64              // ms; start of the tick for which the timer was set
	reserved bool               // the timer is for a missed tick that may run then
	blocked  bool               // it is in schedules.blocked
}

// rebuild prepares the timers of all schedules. They are set after the first entry of the
// term, some at a time: the calendars of many schedules would delay the term. Nothing fires
// yet: the wall clock must be confirmed first.
func (t *schedules) rebuild(b *batch) {
	t.offset = offsetOf(b)
	for x := range b.view.Schedules() {
		t.unarmed = append(t.unarmed, x.ID)
	}
	t.retryLater(b)
}

// armSome sets the timers of the next schedules that have none yet.
func (t *schedules) armSome(b *batch) {
	n := 0
	for cost := 0; n < len(t.unarmed) && cost < armedAtOnce; n++ {
		x := b.view.Schedule(t.unarmed[n])
		if x == nil {
			continue // it was deleted meanwhile
		}
		cost += armCost(x)
		if s := t.of(b, x); s.due == 0 && !s.blocked { // else it was changed meanwhile
			t.arm(b, s)
		}
	}
	t.unarmed = t.unarmed[n:]
}

// armCost is how much longer it takes to arm a schedule than one without listed times.
func armCost(x *fsm.Schedule) int { return 1 + (len(x.At)+len(x.Except))/8 }

// of returns the soft state of a schedule as it is in the view.
func (t *schedules) of(b *batch, x *fsm.Schedule) *schedule {
	s := t.byID[x.ID]
	if s != nil && s.version == x.Version {
		return s
	}
	s = &schedule{id: x.ID, version: x.Version}
	t.byID[x.ID] = s
	var err error
	if s.calendar, err = calendarIn(t.cfg.Zone, x.Name, &x.Recurrence); err != nil {
		b.cfg.Logger.Error("schedule is invalid in this version and does not fire: set it again", "schedule", x.Name, "namespace", x.Namespace, "err", err)
	}
	return s
}

// changed follows a change of a schedule by a user.
func (t *schedules) changed(b *batch, id fsm.ScheduleID) {
	x := b.view.Schedule(id)
	if x == nil {
		delete(t.byID, id)
		return
	}
	t.arm(b, t.of(b, x))
}

// next returns the next tick of a schedule that can fire.
func next(v *fsm.State, s *schedule) (x *fsm.Schedule, tick calendar.Tick, ok bool) {
	x = v.Schedule(s.id)
	if x == nil || s.calendar == nil || x.IsPaused() || !v.OwnerLives(x) {
		return x, calendar.Tick{}, false
	}
	tick, ok = s.calendar.Next(time.UnixMilli(x.AfterMS))
	for ok && IsPast(x, tick) {
		tick, ok = s.calendar.Next(tick.At)
	}
	return x, tick, ok
}

// IsPast reports whether the wall-clock time of a tick was decided before, by a leader with
// other time zones. It never fires then.
func IsPast(x *fsm.Schedule, tick calendar.Tick) bool {
	return x.Ordered && x.LastCivil != 0 && tick.Civil <= x.LastCivil
}

// arm sets the timer of the next tick of a schedule, if it has one.
func (t *schedules) arm(b *batch, s *schedule) {
	s.due, s.reserved = 0, false
	_, tick, ok := next(b.view, s)
	if !ok {
		return
	}
	due := tick.Start.UnixMilli()
	at := b.now.Add(min(b.monotonic(due).Sub(b.now), maxTickTimer))
	if s.timerDue == due && !s.timer.IsZero() && !at.Before(s.timer) {
		s.due = due // there is an earlier timer, which sets the next one: see gates.wait
		return
	}
	t.armAt(s, due, at)
}

func (t *schedules) armAt(s *schedule, dueMS int64, at time.Time) {
	s.due, s.timer, s.timerDue = dueMS, at, dueMS
	t.timers.add(timer{at: at, kind: timerTick, task: fsm.TaskRef{Job: fsm.JobID(s.id)}, due: dueMS})
}

// fire executes the timer of a schedule, or of all that have none yet or are blocked.
func (t *schedules) fire(b *batch, x timer) {
	if x.task.Job == 0 {
		t.retry(b)
		return
	}
	s := t.byID[fsm.ScheduleID(x.task.Job)]
	if s == nil || s.timerDue != x.due || !s.timer.Equal(x.at) {
		return // another timer was set since
	}
	s.timer = time.Time{}
	if s.due == x.due {
		t.advance(b, s)
	}
}

// retry sets timers that are missing, and tries the schedules that were blocked.
func (t *schedules) retry(b *batch) {
	t.armSome(b)
	list := t.blocked
	t.blocked = nil
	for i, s := range list {
		if b.full() || !t.cfg.ClockAgrees() || t.uploads.full() || t.searches.areSpent(b) {
			t.blocked = append(t.blocked, list[i:]...)
			break
		}
		if x := b.view.Schedule(s.id); x != nil && t.byID[s.id] == s && t.uploads.check(b.view, x.Total()) != nil {
			t.blocked = append(t.blocked, s) // without its next tick, which takes far longer to compute
			continue
		}
		if s.blocked = false; t.byID[s.id] == s { // else deleted or replaced meanwhile
			t.advance(b, s)
		}
	}
	t.retrying = false // only now: one that is blocked again must not decide when the rest is tried
	t.retryLater(b)
}

// block tries a schedule again later.
func (t *schedules) block(b *batch, s *schedule) {
	s.due = 0
	if !s.blocked {
		s.blocked = true
		t.blocked = append(t.blocked, s)
	}
	t.retryLater(b)
}

func (t *schedules) retryLater(b *batch) {
	if t.retrying || len(t.blocked) == 0 && len(t.unarmed) == 0 {
		return
	}
	t.retrying = true
	at := b.now.Add(t.cfg.TimeScale.Scale(blockedRetry))
	switch {
	case b.full():
		at = b.now
	case len(t.unarmed) > 0 || t.uploads.full() || t.searches.areSpent(b):
		at = b.now.Add(armInterval)
	}
	t.timers.add(timer{at: at, kind: timerTick})
}

// advance decides the ticks of a schedule that are due, and sets the timer of the next one.
func (t *schedules) advance(b *batch, s *schedule) {
	reserved := s.reserved
	s.due, s.reserved = 0, false
	for {
		x, tick, ok := next(b.view, s)
		switch {
		case !ok:
			return
		case tick.Start.After(b.wall): // or the wall clock was set back
			t.arm(b, s)
			return
		case b.full() || !t.cfg.ClockAgrees() || t.uploads.full() || t.uploads.check(b.view, x.Total()) != nil:
			t.block(b, s)
			return
		}
		if b.wall.Sub(tick.Start) <= LateAfter {
			if !t.decide(b, x, tick, fsm.TickRuns, 0) {
				return
			}
			continue
		}
		if !reserved && t.searches.areSpent(b) {
			t.block(b, s)
			return
		}
		m := t.missed(b, x, s, tick)
		if m.decision == fsm.TickRuns && !reserved && b.now.Before(t.nextMissed) {
			s.reserved = true
			t.armAt(s, tick.Start.UnixMilli(), t.nextMissed)
			t.nextMissed = t.nextMissed.Add(missedInterval)
			return
		}
		if m.decision == fsm.TickRuns && !reserved {
			t.nextMissed = b.now.Add(missedInterval)
		}
		reserved = reserved && m.decision != fsm.TickRuns
		if !t.decide(b, x, m.tick, m.decision, countTicks(s.calendar, tick, m.tick, maxCounted)) {
			return
		}
	}
}

// decide proposes what happens to a tick. The state machine knows whether an earlier run
// forbids this one. It returns false if it rejects the tick for a reason that no later try
// would change.
func (t *schedules) decide(b *batch, x *fsm.Schedule, tick calendar.Tick, d fsm.Decision, earlier uint32) bool {
	op := &fsm.Fire{Schedule: x.ID, Version: x.Version, TickMS: tick.At.UnixMilli(), Civil: tick.Civil, Decision: d, Earlier: earlier}
	r := b.entry.Do(op)
	if r == fsm.RunOpen {
		op.Decision = fsm.TickSkippedOpen
		r = b.entry.Do(op)
	}
	if r != fsm.Accepted {
		b.cfg.Logger.Error("schedule does not fire", "schedule", x.Name, "namespace", x.Namespace, "tick", tick.At, "err", r)
		return false
	}
	if op.Decision == fsm.TickRuns {
		t.uploads.start(x.Total())
	}
	t.count(b, op, b.wall.Sub(tick.Start))
	return true
}

// count counts what a decision does.
func (t *schedules) count(b *batch, op *fsm.Fire, late time.Duration) {
	totals := b.cfg.Totals
	switch op.Decision {
	case fsm.TickRuns:
		totals.ScheduledRuns.Add(1)
		totals.FireDelay.Observe(late)
	case fsm.TickSkippedOpen:
		totals.TicksSkipped.Add(1)
	case fsm.TickSkippedMissed:
		totals.TicksMissed.Add(1)
	}
	totals.TicksMissed.Add(uint64(op.Earlier))
}

// sweep lets the timers be set again if the wall clock was set.
func (t *schedules) sweep(b *batch) {
	if !t.offset.follow(b) {
		return
	}
	for x := range b.view.Schedules() {
		if s := t.byID[x.ID]; s != nil && s.due != 0 && !s.reserved {
			s.due = 0
			t.unarmed = append(t.unarmed, x.ID)
		}
	}
	t.retryLater(b)
}
