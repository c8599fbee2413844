package sequencer_test

import (
	"context"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// simLimits is an operator who sets, changes and deletes named limits, and what is known of
// the attempts that count towards them. After the faults, all limits exist and keep their
// values: nothing but the end of attempts and the time lets the last tasks start.
type simLimits struct {
	c      *sim
	raised bool // the cluster has the level
	calm   bool // all limits exist and are not changed any more

	assigned uint64                             // number of assignments
	counted  map[fsm.AttemptRef]simLimited      // attempts with limits
	uses     map[string]map[fsm.AttemptRef]bool // running attempts by what they use
	starts   map[string]simStarts               // by what tasks use
}

// simLimited is an attempt with limits.
type simLimited struct {
	order uint64            // of its assignment
	uses  map[string]uint32 // the value of each limit at its assignment; 0 = unlimited
}

// simStarts are the starts since a limit was changed.
type simStarts struct {
	settings fsm.LimitSettings
	at       []time.Time
}

var simLimitNames = []string{"db", "api", "tenant/*"}

// simUses are what tasks use. The keys have the same length and end alike.
var simUses = []string{"db", "api", "tenant/acme", "tenant/bcme"}

func newSimLimits(c *sim) *simLimits {
	x := &simLimits{
		c: c, counted: map[fsm.AttemptRef]simLimited{}, uses: map[string]map[fsm.AttemptRef]bool{}, starts: map[string]simStarts{},
	}
	c.after(c.upTo(100*time.Millisecond), x.turn)
	return x
}

// use chooses what a policy uses.
func (x *simLimits) use(p *dtaskv1.TaskPolicy) {
	if x == nil || !x.c.chance(60) {
		return
	}
	first := x.c.rng.IntN(len(simUses))
	p.Uses = []string{simUses[first]}
	if second := x.c.rng.IntN(len(simUses)); second > first && x.c.chance(60) {
		p.Uses = append(p.Uses, simUses[second])
	}
}

func (x *simLimits) turn() {
	c := x.c
	if x.calm {
		return
	}
	if t := c.anyTerm(); t != nil {
		x.act(t)
	}
	pause := time.Second
	if x.raised && !c.calm && len(x.missing()) == 0 {
		pause = 8 * time.Second // a change begins a new count of starts
	}
	c.after(c.upTo(pause), x.turn)
}

func (x *simLimits) act(t *simTerm) {
	c := x.c
	name := simLimitNames[c.rng.IntN(len(simLimitNames))]
	missing := x.missing()
	c.note("limit", uint64(len(name)), uint64(len(missing)))
	switch {
	case !x.raised:
		x.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error {
			return s.ChangeLevel(ctx, func(l fsm.Level, _ bool) *fsm.SetLevel {
				if l >= fsm.MaxLevel {
					return nil
				}
				return &fsm.SetLevel{Level: fsm.MaxLevel}
			})
		}, func() { x.raised = true })
	case len(missing) > 0 && (c.calm || c.chance(70)):
		x.set(t, missing[0])
	case c.calm:
		x.calm = len(c.calls) == 0 // else a request may still delete one
	case c.chance(25):
		x.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error { return s.DeleteLimit(ctx, name, 0) }, nil)
	default:
		x.set(t, name)
	}
}

// missing returns the limits that do not exist.
func (x *simLimits) missing() (names []string) {
	x.c.log.truth.Read(func(s *fsm.State, _ uint64) {
		for _, name := range simLimitNames {
			if s.NamedLimit(name) == nil {
				names = append(names, name)
			}
		}
	})
	return names
}

// set sets a limit to a random value. Only that of the name api always has a rate.
func (x *simLimits) set(t *simTerm, name string) {
	c := x.c
	to := fsm.LimitSettings{Running: 1 + c.rng.Uint32N(3)}
	if name == "api" || c.chance(20) {
		to.Running = c.rng.Uint32N(2) * to.Running
		to.Rate, to.PeriodMS, to.Burst = 1+c.rng.Uint32N(3), 500+c.rng.Uint32N(4500), 1+c.rng.Uint32N(5)
	}
	x.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error {
		_, err := s.SetLimit(ctx, name, to, 0, "alice")
		return err
	}, nil)
}

func (x *simLimits) ask(t *simTerm, ask func(context.Context, *sequencer.Sequencer) error, done func()) {
	x.c.call(t, 5*time.Second, ask, func(err error) {
		if err == nil && done != nil {
			done()
		}
	})
}

// wasAssigned records an attempt with limits, and checks that their rates allow its start.
// before has the limits before the entry: a batch may change one before or after it assigns.
func (x *simLimits) wasAssigned(s *fsm.State, it fsm.AssignItem, before map[string]fsm.LimitSettings, data []byte) {
	if x == nil {
		return
	}
	uses := s.Policy(it.TaskRef).GetUses()
	if len(uses) == 0 {
		return
	}
	x.assigned++
	a := simLimited{order: x.assigned, uses: map[string]uint32{}}
	for _, use := range uses {
		old, now := before[fsm.LimitOf(use)], s.NamedLimit(fsm.LimitOf(use)).GetSettings()
		if a.uses[use] = max(old.Running, now.Running); old.Running == 0 || now.Running == 0 {
			a.uses[use] = 0
		}
		x.started(use, old, now, x.c.proposed[&data[0]].at)
	}
	x.counted[it.AttemptRef] = a
}

// started checks that the starts with a use in any time t are at most burst + rate × t, also
// if the leader has changed. at is when the entry was proposed: its tokens were taken up to a
// round trip to the log before, when the batch began.
func (x *simLimits) started(use string, before, now fsm.LimitSettings, at time.Time) {
	k := x.starts[use]
	if before != now || k.settings != now {
		x.starts[use] = simStarts{settings: now}
		return // the entry may have changed the limit after the start
	}
	if now.Rate == 0 {
		return
	}
	k.at = append(k.at, at)
	x.starts[use] = k
	for i, first := range k.at {
		us := (at.Sub(first) + 2*(x.c.opts.Latency+x.c.opts.Lag)).Microseconds() + 1 // buckets count in whole microseconds
		n, most := int64(len(k.at)-i), int64(now.Burst)*int64(now.PeriodMS)*1000+int64(now.Rate)*us
		if n*int64(now.PeriodMS)*1000 > most {
			x.c.fail("%d tasks that use %s started within %v: %+v", n, use, at.Sub(first), now)
		}
	}
}

// limitsBefore returns the settings of all limits.
func (x *simLimits) limitsBefore(s *fsm.State) map[string]fsm.LimitSettings {
	if x == nil {
		return nil
	}
	all := map[string]fsm.LimitSettings{}
	for l := range s.NamedLimits() {
		all[l.Name] = l.LimitSettings
	}
	// Starts before a change are not counted with those after it.
	for use, k := range x.starts {
		if all[fsm.LimitOf(use)] != k.settings {
			delete(x.starts, use)
		}
	}
	return all
}

// mayIsolate sometimes cuts off the worker of an attempt that was begun. Sometimes its task is
// cancelled then, while the worker runs it.
func (x *simLimits) mayIsolate(w *simWorker, task fsm.TaskRef, limited bool) {
	if x == nil || !limited || x.c.calm || x.c.opts.Calm || !x.c.chance(20) {
		return
	}
	x.c.after(x.c.upTo(time.Second), func() {
		if !w.gone {
			x.isolate(w)
		}
	})
	if x.c.chance(40) {
		x.c.after(time.Second+x.c.upTo(8*time.Second), func() {
			if t := x.c.anyTerm(); t != nil {
				x.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error {
					_, err := s.CancelTask(ctx, task, "cut off")
					return err
				}, nil)
			}
		})
	}
}

// executionStarts checks that no limit is exceeded by what runs. Among the attempts that
// run, each was assigned when those before it ran: the limit had room for it then.
func (x *simLimits) executionStarts(a fsm.AttemptRef) {
	if x == nil {
		return
	}
	for use := range x.counted[a].uses {
		if x.uses[use] == nil {
			x.uses[use] = map[fsm.AttemptRef]bool{}
		}
		x.uses[use][a] = true
		for b := range x.uses[use] {
			x.checkRunning(use, b)
		}
	}
}

// checkRunning checks that a limit had room for an attempt beside those that were assigned
// before and still run.
func (x *simLimits) checkRunning(use string, a fsm.AttemptRef) {
	most, order := x.counted[a].uses[use], x.counted[a].order
	if most == 0 || !x.leased(a) {
		return
	}
	n := uint32(0)
	for b := range x.uses[use] {
		if x.counted[b].order <= order && x.leased(b) {
			n++
		}
	}
	if n > most {
		x.c.fail("%d attempts that use %s run at once, and its limit was %d when %v was assigned: %v", n, use, most, a, x.uses[use])
	}
}

// leased reports whether the worker of a running attempt has its lease. A paused process
// cannot end what it runs: its fencing token is too old.
func (x *simLimits) leased(a fsm.AttemptRef) bool {
	w := x.c.running[a]
	return w != nil && !w.leaseOver()
}

func (x *simLimits) executionEnds(a fsm.AttemptRef) {
	if x == nil {
		return
	}
	for use := range x.counted[a].uses {
		delete(x.uses[use], a)
	}
}

// isolate cuts a worker off for longer than a leader waits for it, and sometimes for longer
// than its lease.
func (x *simLimits) isolate(w *simWorker) {
	x.c.note("isolate-worker", w.label(), 0)
	w.isolated = time.Now().Add(x.c.upTo(x.c.opts.Lease + 10*time.Second))
	w.disconnect(x.c.upTo(time.Second))
}

// leaseOver reports whether the worker's lease has ended.
func (w *simWorker) leaseOver() bool { return time.Since(w.answered) >= w.c.opts.Lease }

// limitedEnd ends the attempts that must not run without a lease.
func (w *simWorker) limitedEnd() {
	for _, a := range sortedRefs(w.held) {
		if x := w.held[a]; x.limited && !x.queued && !x.asking {
			w.c.note("lease-ended", w.label(), uint64(a.Attempt))
			w.end(a, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED})
		}
	}
}
