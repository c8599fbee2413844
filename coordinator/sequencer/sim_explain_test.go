package sequencer_test

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// simExplains is a user who asks why tasks are in their states. It draws from a generator of its
// own, so that all other parts do what they do without it.
type simExplains struct {
	c   *sim
	rng *rand.Rand
}

func newSimExplains(c *sim) {
	x := &simExplains{c: c, rng: rand.New(rand.NewPCG(c.seed, 3))}
	c.after(x.pause(), x.turn)
}

func (x *simExplains) pause() time.Duration { return time.Duration(x.rng.Int64N(int64(time.Second))) }

func (x *simExplains) turn() {
	c := x.c
	if c.calm {
		return
	}
	if len(c.terms) > 0 {
		t := c.terms[x.rng.IntN(len(c.terms))] // also one that is deposed
		if ref, ok := x.task(); ok && x.rng.IntN(2) == 0 {
			x.explain(t, ref)
		} else if ok {
			c.call(t, 5*time.Second, func(ctx context.Context, s *sequencer.Sequencer) error { return s.ExplainChangesNothing(ctx, ref) }, func(err error) {
				if err != nil {
					c.fail("%v", err)
				}
			})
		}
	}
	c.after(x.pause(), x.turn)
}

// task chooses a task, mostly one that waits for a worker if there is any.
func (x *simExplains) task() (ref fsm.TaskRef, ok bool) {
	j := x.c.jobs[x.rng.IntN(len(x.c.jobs))]
	if j.id == 0 {
		return ref, false
	}
	ref = fsm.TaskRef{Job: j.id, Index: x.rng.Uint32N(j.sub.Total)}
	if x.rng.IntN(4) == 0 {
		return ref, true
	}
	x.c.log.truth.Read(func(s *fsm.State, _ uint64) {
		for i := range j.sub.Total {
			at := fsm.TaskRef{Job: j.id, Index: (ref.Index + i) % j.sub.Total}
			if t, known := s.Task(at); known && t.State == fsm.Pending {
				ref = at
				return
			}
		}
	})
	return ref, true
}

// explain asks for an answer and checks it.
func (x *simExplains) explain(t *simTerm, ref fsm.TaskRef) {
	c := x.c
	var e *sequencer.Explanation
	c.call(t, 5*time.Second, func(ctx context.Context, s *sequencer.Sequencer) (err error) {
		e, err = s.Explain(ctx, ref)
		return err
	}, func(err error) {
		if err != nil {
			return
		}
		c.note("explained", uint64(ref.Job), uint64(e.State))
		waits := e.State == fsm.Pending || e.State == fsm.Scheduled || e.State == fsm.Blocked
		switch {
		case e.Capacity == nil && waits:
			c.fail("%v task %v has an empty answer: %+v", e.State, ref, e)
		case e.Estimate == nil && e.State == fsm.Pending:
			c.fail("pending task %v has no estimate", ref)
		case e.Capacity == nil:
		default:
			k := e.Capacity(func(fsm.WorkerID) bool { return true })
			if e.State == fsm.Pending {
				x.check(ref, e, k)
			}
		}
	})
}

// check checks that what is said of a pending task agrees.
func (x *simExplains) check(ref fsm.TaskRef, e *sequencer.Explanation, k *sequencer.Capacity) {
	c := x.c
	held := k.Limit > 0 && k.Held >= k.Limit || len(k.Queue) > 0
	for _, l := range k.Limits {
		full := l.Running > 0 && l.Held >= l.Running
		held = held || full || l.Paused || l.Rated && l.Tokens == 0
		if len(l.Holders) > int(l.Held) || !full && len(l.Holders) > 0 {
			c.fail("task %v: %d attempts hold limit %s, by %v", ref, l.Held, l.Name, l.Holders)
		}
	}
	free := false // a worker has no obstacle
	for _, g := range k.Groups {
		free = free || len(g.Obstacles) == 0
	}
	switch {
	case k.Fits && held:
		c.fail("task %v fits, and its queue or a limit holds it back: %+v", ref, k)
	case k.Fits && (!free || !k.EverFits):
		c.fail("task %v fits, and each worker lacks something: %+v", ref, k)
	case !k.Fits && !held && !k.Waits && free:
		c.fail("task %v does not fit, and a worker lacks nothing: %+v", ref, k)
	}
	if s := e.Estimate(func(fsm.TaskRef) []time.Duration { return simRunTimes }); s.Doubt == "" && (s.From < 0 || s.To < s.From) {
		c.fail("task %v starts between %v and %v", ref, s.From, s.To)
	}
}

// simRunTimes are those of all tasks.
var simRunTimes = []time.Duration{time.Millisecond, time.Second, time.Second, 2 * time.Second, 5 * time.Second}
