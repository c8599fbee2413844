package sequencer_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// simSchedule is a schedule and its user, who changes it until the faults end, and deletes
// it then.
type simSchedule struct {
	c      *sim
	name   string
	sets   int
	raised bool // the cluster has the level
	gone   bool // deleted after the faults
}

func newSimSchedule(c *sim, number int) *simSchedule {
	x := &simSchedule{c: c, name: fmt.Sprintf("schedule%d", number)}
	c.after(c.upTo(time.Second), x.turn)
	return x
}

// turn is an event of the user.
func (x *simSchedule) turn() {
	c := x.c
	if x.gone {
		return
	}
	if t := c.anyTerm(); t != nil {
		x.act(t)
	}
	c.after(c.upTo(1500*time.Millisecond), x.turn)
}

func (x *simSchedule) act(t *simTerm) {
	c := x.c
	id := fsm.ScheduleID(0)
	c.log.truth.Read(func(s *fsm.State, _ uint64) {
		if found := s.ScheduleByName("", x.name); found != nil {
			id = found.ID
		}
	})
	n := c.rng.IntN(10)
	c.note("schedule", uint64(id), uint64(n))
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
	case hasClockDoubt(c.seed) && !c.calm && id != 0 && !c.clockAgrees():
		// A change would discard the ticks before it.
	case c.calm && id == 0:
		x.gone = len(c.calls) == 0 // else a request may still set it
	case c.calm:
		x.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error { return s.DeleteSchedule(ctx, id, 0) }, nil)
	case id == 0 || n == 0:
		set := x.definition()
		x.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error { _, err := s.SetSchedule(ctx, set); return err }, nil)
	case n == 1:
		x.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error {
			_, err := s.PauseSchedule(ctx, id, "new disk", "alice")
			return err
		}, nil)
	case n < 4:
		x.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error {
			_, err := s.ResumeSchedule(ctx, id)
			return err
		}, nil)
	case n == 4:
		x.sets++
		run := sequencer.ScheduleRun{Schedule: id, Key: fmt.Sprintf("%s run %d", x.name, x.sets), TickMS: c.rng.Int64N(2) * simEpoch.UnixMilli()}
		x.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error { _, err := s.RunSchedule(ctx, run); return err }, nil)
	}
}

func (x *simSchedule) ask(t *simTerm, ask func(context.Context, *sequencer.Sequencer) error, done func()) {
	x.c.call(t, 5*time.Second, ask, func(err error) {
		if err == nil && done != nil {
			done()
		}
	})
}

// definition is a schedule that fires every few seconds, by random rules.
func (x *simSchedule) definition() sequencer.NewSchedule {
	c := x.c
	x.sets++
	h := &dtaskv1.JobHeader{Name: x.name, Priority: dtaskv1.Priority_PRIORITY_NORMAL, Policies: []*dtaskv1.TaskPolicy{c.policy()}}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(h)
	if err != nil {
		c.fail("%v", err)
	}
	b := fsm.NewChunkBuilder(0)
	for i := range 1 + c.rng.IntN(3) {
		b.Add(fmt.Sprintf("t%d", i), 0, nil, []byte("\x2a\x04body"))
	}
	chunk := b.Chunk()
	n := sequencer.NewSchedule{
		Submission: sequencer.Submission{Key: fmt.Sprintf("%s set %d", x.name, x.sets), Header: raw, Total: uint32(chunk.Len()), Chunks: []*fsm.Chunk{chunk}, Sum: chunk.Sum(0)},
		Name:       x.name, By: "alice",
		Recurrence:    fsm.Recurrence{EveryMS: 1000 * (1 + c.rng.Int64N(4)), JitterMS: c.rng.Int64N(2) * 700},
		ScheduleRules: fsm.ScheduleRules{Overlap: fsm.Overlap(1 + c.rng.IntN(5)), Missed: fsm.MissedRule(1 + c.rng.IntN(2)), WithinMS: 20_000},
	}
	if n.EveryMS == 3000 {
		n.EveryMS, n.Cron, n.Zone = 0, []string{simFixed}, "Europe/Berlin"
	}
	if drawsMissedSkip(c.seed) && c.rng.IntN(3) == 0 {
		n.Missed, n.WithinMS = fsm.MissedSkip, 0
	}
	copy(n.Digest[:], n.Key)
	return n
}

// drawsMissedSkip reports whether schedules may skip all missed ticks in the run of a seed. The first
// ones give the runs that they gave before, by which planted bugs are caught.
func drawsMissedSkip(seed uint64) bool { return seed > 1000 }

// hasClockDoubt reports whether all leaders doubt their clocks for some time in the run of a seed, so
// that ticks are missed.
func hasClockDoubt(seed uint64) bool { return drawsMissedSkip(seed) && seed%5 == 2 }

// clockAgrees reports whether a leader does not doubt its clock: not for 15 to 24 s from one of the
// first 10 s on.
func (c *sim) clockAgrees() bool {
	from := time.Duration(c.seed/5%10) * time.Second
	passed := time.Since(simEpoch)
	return passed < from || passed >= from+15*time.Second+time.Duration(c.seed/50%10)*time.Second
}

// simFixed is a cron expression that fires every three seconds. It lists minutes and hours, so
// that none of its wall-clock times may fire twice.
var simFixed = "*/3 " + upTo(59) + " " + upTo(23) + " * * *"

// upTo returns the list of all numbers up to one.
func upTo(n int) string {
	text := "0"
	for i := range n {
		text += fmt.Sprintf(",%d", i+1)
	}
	return text
}

// simZone returns the time zones that a replica knows: the wall-clock times of replicas differ
// by some seconds, as if they had other versions of the time zones.
func simZone(replica int) func(string) (*time.Location, error) {
	return func(name string) (*time.Location, error) { return time.FixedZone(name, 3600+7*replica), nil }
}

// beforeFire checks that a tick is decided once and not early, and only while the schedule
// is not paused.
func (l *simLedger) beforeFire(s *fsm.State, e fsm.Entry, op *fsm.Fire, began time.Time) {
	l.once(fmt.Sprintf("tick %d of schedule %d", op.TickMS, op.Schedule))
	if x := s.Schedule(op.Schedule); x != nil && x.Ordered {
		l.once(fmt.Sprintf("wall-clock time %d of schedule %d in version %d", op.Civil, op.Schedule, x.Version))
	}
	l.c.clocks.notEarly(fmt.Sprintf("tick %d", op.TickMS), op.TickMS, began)
	l.notTooLate(s.Schedule(op.Schedule), e, op)
	if op.TickMS > e.NowMS {
		l.c.fail("tick %d fired at %d", op.TickMS, e.NowMS)
	}
	if x := s.Schedule(op.Schedule); x != nil && x.IsPaused() && len(e.Ops) == 1 {
		l.c.fail("tick %d fired although schedule %s is paused", op.TickMS, x.Name)
	}
}

// notTooLate checks that a tick does not run after the time in which its schedule lets missed ones
// run, or at all if it skips them. The stamp of an entry may be that of an earlier leader, whose
// clock differs by twice the skew.
func (l *simLedger) notTooLate(x *fsm.Schedule, e fsm.Entry, op *fsm.Fire) {
	if x == nil || x.Version != op.Version || op.Decision != fsm.TickRuns || l.c.clocks != nil {
		return
	}
	most := max(10_000+x.JitterMS, x.WithinMS) + 2*simRightSkew.Milliseconds()
	if late := e.NowMS - op.TickMS; late > most {
		l.c.fail("tick %d of schedule %s runs %d ms late, rule %d", op.TickMS, x.Name, late, x.Missed)
	}
}

// checkRuns checks that no two runs of a schedule run together unless they may.
func (l *simLedger) checkRuns(s *fsm.State) {
	for x := range s.Schedules() {
		running := 0
		for _, id := range s.OpenRuns(x) {
			if job, _ := s.Job(id); job.Counts[fsm.Assigned] > 0 && !job.CleaningUp() {
				running++
			}
		}
		if running > 1 && x.Overlap != fsm.OverlapAllow && x.Version == 1 {
			l.c.fail("%d runs of schedule %s run together, rule %d", running, x.Name, x.Overlap)
		}
	}
}
