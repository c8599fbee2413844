package sequencer

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// SetLimit sets a named limit or replaces it, and returns it as it is then. version is the
// one that it must have; 0 = any, or none. A repeated request changes nothing. Errors:
// *RejectedError as for fsm.SetLimit, *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) SetLimit(ctx context.Context, name string, to fsm.LimitSettings, version uint32, by string) (*fsm.NamedLimit, error) {
	return s.changeLimit(ctx, name, func(b *batch) fsm.Op {
		return &fsm.SetLimit{Name: name, LimitSettings: to, By: by, IfVersion: version, AtMS: b.entry.NowMS()}
	})
}

// DeleteLimit removes a named limit. version is the one that it must have; 0 = any. Errors:
// *RejectedError with LimitNotFound, VersionMismatch, or WrongState while jobs use it;
// *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) DeleteLimit(ctx context.Context, name string, version uint32) error {
	_, err := s.changeLimit(ctx, name, func(*batch) fsm.Op { return &fsm.DeleteLimit{Name: name, IfVersion: version} })
	return err
}

// changeLimit proposes a change of a limit, and returns the limit as it is then; nil if it is
// not set.
func (s *Sequencer) changeLimit(ctx context.Context, name string, change func(b *batch) fsm.Op) (*fsm.NamedLimit, error) {
	return do(ctx, s.inbox, classCancel, func(b *batch) (*fsm.NamedLimit, error) {
		old := b.view.NamedLimit(name).GetSettings()
		if r := b.entry.Do(change(b)); r != fsm.Accepted {
			return nil, &RejectedError{Reason: r}
		}
		l, p := b.view.NamedLimit(name), s.dispatch.policies
		if to := l.GetSettings(); to != old {
			p.rates.changed(b.now, name, old, to)
			p.setLimits(b.view, name)
		}
		return l, nil
	})
}

// setLimits gives the scheduler the settings of a limit for all that tasks use of it.
func (p *policyTable) setLimits(v *fsm.State, name string) {
	for _, use := range p.sched.NamedLimits() {
		if fsm.LimitOf(use) == name {
			p.setLimit(v, use)
		}
	}
}

// setLimit gives the scheduler the settings of the limit of a use.
func (p *policyTable) setLimit(v *fsm.State, use string) {
	l := v.NamedLimit(fsm.LimitOf(use)).GetSettings()
	p.sched.SetNamedLimit(use, l.Running)
	p.rates.use(use, l)
}

// LimitLoad is what counts towards a limit, or a key of it, and waits for it.
type LimitLoad struct {
	scheduler.LimitLoad
	Holders []fsm.TaskRef // whose attempts count, in order; only if they were asked for
}

// LimitLoads returns the loads of all limits and keys that tasks use, by name. Those of the
// limit with this name have their holders. Errors: *BusyError, ErrTermEnded,
// ErrOutcomeUnknown.
func (s *Sequencer) LimitLoads(ctx context.Context, holdersOf string) ([]LimitLoad, error) {
	return do(ctx, s.inbox, classCancel, func(b *batch) ([]LimitLoad, error) {
		var loads []LimitLoad
		at := make(map[string]int)
		for _, l := range s.dispatch.sched.LimitLoads() {
			if at[l.Name] = len(loads); l.Rated {
				l.Tokens = s.dispatch.policies.rates.tokens(l.Name, b.now)
			}
			loads = append(loads, LimitLoad{LimitLoad: l})
		}
		if holdersOf == "" {
			return loads, nil
		}
		s.workers.eachAttempt(func(t fsm.TaskRef) {
			for _, use := range s.dispatch.policies.of(b.view, t).demand.Uses {
				if i, known := at[use]; known && fsm.LimitOf(use) == holdersOf {
					loads[i].Holders = append(loads[i].Holders, t)
				}
			}
		})
		for i := range loads {
			slices.SortFunc(loads[i].Holders, func(a, b fsm.TaskRef) int {
				return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Index, b.Index))
			})
		}
		return loads, nil
	})
}

// limitLoads returns the limits of the task of a view, without what waits for them. Of the full
// ones, it names the tasks that hold them, unless all workers hold more than an estimate follows.
func limitLoads(v *scheduler.TaskView) (loads []LimitLoad) {
	for _, l := range v.Limits() {
		x := LimitLoad{LimitLoad: l}
		if l.Running > 0 && l.Held >= l.Running {
			for _, t := range v.LimitHolders(l.Name) {
				x.Holders = append(x.Holders, fsm.TaskRef{Job: fsm.JobID(t.Job), Index: t.Index})
			}
		}
		loads = append(loads, x)
	}
	return loads
}

// eachAttempt calls f for the task of each attempt that a worker holds or may hold, in any
// order.
func (t *workerTable) eachAttempt(f func(fsm.TaskRef)) {
	for _, w := range t.byID {
		for i := range w.held.list {
			f(w.held.list[i].TaskRef)
		}
	}
	for a := range t.leases.byRef {
		f(a.TaskRef)
	}
}

// settling keeps tasks with named limits from starting at the begin of a term. The state has
// the live attempts only: others, which were stopped, may still run on workers that have no
// session yet, or have become down, and under earlier processes of a worker. They end with
// their leases.
type settling struct {
	cfg     *Config
	sched   *scheduler.Scheduler
	timers  *timers
	pending map[fsm.WorkerID]bool // workers without a session in this term; nil: it is over
	until   time.Time
}

// clockSlack is how far the wall clocks of two leaders may differ, so that a new one knows
// which leases may not have ended. Clocks that differ by a third of it raise an alarm.
const clockSlack = 30 * time.Second

// leaseMemory is for how long after a worker became down, or another process took its name, a
// new leader must know of that.
func (c *Config) leaseMemory() time.Duration { return c.Lease + clockSlack }

// begin begins the settling. It has no effect while no task uses a limit.
func (x *settling) begin(b *batch) {
	x.pending = make(map[fsm.WorkerID]bool)
	x.sched.PauseLimits(true)
	oldest := b.entry.NowMS() - x.cfg.leaseMemory().Milliseconds()
	for w := range b.view.Workers() {
		if w.State == fsm.WorkerUp {
			x.pending[w.ID] = true
		}
		// An earlier process may have had its name until then.
		if max(w.UpSince, w.DownSince) > oldest {
			x.until = b.now.Add(x.cfg.Lease)
		}
	}
	x.timers.add(timer{at: x.until, kind: timerSettled})
}

// attached records that a worker has reported what it holds.
func (x *settling) attached(b *batch, id fsm.WorkerID) {
	if x.pending[id] {
		delete(x.pending, id)
		x.end(b)
	}
}

// unknown records that a worker holds an attempt of a job that is not in the state any more: an
// earlier leader has stopped it, and it may count towards any limit until it has ended.
func (x *settling) unknown(b *batch) {
	if x.pending != nil {
		x.until = b.now.Add(x.cfg.Lease)
		x.timers.add(timer{at: x.until, kind: timerSettled})
	}
}

// removed records that a worker is gone. If it had no session in this term, what it holds is
// not known until its leases end.
func (x *settling) removed(b *batch, id fsm.WorkerID) {
	if x.pending[id] {
		delete(x.pending, id)
		x.until = b.now.Add(x.cfg.Lease)
		x.timers.add(timer{at: x.until, kind: timerSettled})
	}
}

// end ends the settling if all attempts are known.
func (x *settling) end(b *batch) {
	if x.pending == nil || len(x.pending) > 0 || b.now.Before(x.until) {
		return
	}
	x.pending = nil
	x.sched.PauseLimits(false)
}
