package sequencer_test

import (
	"context"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// simQueues is an operator who sets, pauses and deletes queues, and moves jobs between them.
// After the faults, nothing is paused any more.
type simQueues struct {
	c      *sim
	raised bool            // the cluster has the level
	calm   map[string]bool // queues that hold nothing back any more
}

var simQueueNames = []string{"etl", "ml", fsm.DefaultQueue}

func newSimQueues(c *sim) *simQueues {
	x := &simQueues{c: c, calm: map[string]bool{}}
	c.after(c.upTo(time.Second), x.turn)
	return x
}

func (x *simQueues) turn() {
	c := x.c
	if len(x.calm) == len(simQueueNames) {
		return
	}
	if t := c.anyTerm(); t != nil {
		x.act(t)
	}
	c.after(c.upTo(1500*time.Millisecond), x.turn)
}

func (x *simQueues) act(t *simTerm) {
	c := x.c
	name := simQueueNames[c.rng.IntN(len(simQueueNames))]
	n := c.rng.IntN(10)
	c.note("queue", uint64(len(name)), uint64(n))
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
	case c.calm && len(c.calls) == 0: // else a request may still pause one
		x.release(t, name)
	case c.calm:
	case n < 3:
		to := fsm.QueueSettings{Weight: 1 + c.rng.Uint32N(4), MaxRunning: c.rng.Uint32N(2) * (1 + c.rng.Uint32N(4))}
		if c.chance(20) {
			to.Rate, to.PeriodMS, to.Burst = 1, 1000, 5
		}
		if c.chance(25) {
			to.Max = []fsm.Resource{{Name: "cpu", Amount: 2000 + c.rng.Int64N(2000)}}
		}
		if c.chance(10) {
			to.Require = []fsm.Label{{Key: "pool", Value: "none"}}
		}
		x.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error {
			_, err := s.SetQueue(ctx, name, to, 0, "alice")
			return err
		}, nil)
	case n == 3:
		x.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error {
			_, _, err := s.PauseQueue(ctx, name, "new disk", "alice")
			return err
		}, nil)
	case n < 6:
		x.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error {
			_, _, err := s.ResumeQueue(ctx, name, "alice")
			return err
		}, nil)
	case n == 6:
		x.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error { return s.DeleteQueue(ctx, name, 0) }, nil)
	default:
		j := c.jobs[c.rng.IntN(len(c.jobs))]
		if j.id == 0 {
			return
		}
		x.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error {
			_, err := s.MoveJob(ctx, fsm.MoveJob{Job: j.id, Queue: name}, false)
			return err
		}, nil)
	}
}

// release makes a queue hold nothing back, once no earlier request may undo that.
func (x *simQueues) release(t *simTerm, name string) {
	x.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error {
		if _, err := s.SetQueue(ctx, name, fsm.QueueSettings{Weight: 1}, 0, "alice"); err != nil {
			return err
		}
		_, _, err := s.ResumeQueue(ctx, name, "alice")
		return err
	}, func() { x.calm[name] = true })
}

func (x *simQueues) ask(t *simTerm, ask func(context.Context, *sequencer.Sequencer) error, done func()) {
	x.c.call(t, 5*time.Second, ask, func(err error) {
		if err == nil && done != nil {
			done()
		}
	})
}

// checkQueues checks that an entry assigned nothing of a paused queue, and nothing above a
// quota.
func (l *simLedger) checkQueues(s *fsm.State, given []fsm.AssignItem) {
	starts, running := map[string]int{}, map[string]int{}
	takes, taken := map[string]bool{}, map[string]int64{} // of cpu
	for _, it := range given {
		if job, ok := s.Job(it.Job); ok {
			queue := fsm.QueueOf(job.Header)
			starts[queue]++
			takes[queue] = takes[queue] || cpuOfTask(s, &job, it.Index) > 0
		}
	}
	if len(starts) == 0 {
		return
	}
	for job := range s.Jobs(0) {
		running[fsm.QueueOf(job.Header)] += int(job.Counts[fsm.Assigned])
		for i := uint32(0); i < job.Total && job.Counts[fsm.Assigned] > 0; i++ {
			if t, _ := s.Task(fsm.TaskRef{Job: job.ID, Index: i}); t.State == fsm.Assigned {
				taken[fsm.QueueOf(job.Header)] += cpuOfTask(s, &job, i)
			}
		}
	}
	for name, n := range starts {
		q := s.Queue(name)
		switch {
		case q == nil:
		case q.IsPaused():
			l.c.fail("%d tasks of the paused queue %s were assigned", n, name)
		case q.MaxRunning > 0 && running[name] > int(q.MaxRunning):
			l.c.fail("queue %s has %d running tasks, and its quota is %d", name, running[name], q.MaxRunning)
		case len(q.Max) > 0 && takes[name] && taken[name] > q.Max[0].Amount:
			l.c.fail("tasks of queue %s take %d of cpu, and its quota is %d", name, taken[name], q.Max[0].Amount)
		}
	}
}

// cpuOfTask returns how much of the resource cpu the last attempt of a task takes.
func cpuOfTask(s *fsm.State, job *fsm.Job, i uint32) int64 {
	t, _ := s.Task(fsm.TaskRef{Job: job.ID, Index: i})
	return cpuOf(job.Policy(t.Policy), t.Alternative)
}

// cpuOf returns how much of the resource cpu an alternative takes.
func cpuOf(p *dtaskv1.TaskPolicy, alternative uint8) int64 {
	if alternative > 0 {
		return p.GetAlternatives()[alternative-1].GetResources()["cpu"]
	}
	return p.GetResources()["cpu"]
}

// alternatives chooses what tasks may take instead of their resources: a GPU, which no worker
// has, or less of the processors. API servers refuse them below their level.
func (c *sim) alternatives(p *dtaskv1.TaskPolicy) {
	raised := c.limits != nil && c.limits.raised || c.queues != nil && c.queues.raised
	if !raised || !c.chance(25) {
		return
	}
	if c.chance(50) {
		p.Resources = map[string]int64{"gpu": 1000}
	}
	for range 1 + c.rng.IntN(2) {
		p.Alternatives = append(p.Alternatives, &dtaskv1.ResourceList{Resources: map[string]int64{"cpu": 300 + c.rng.Int64N(1700)}})
	}
}
