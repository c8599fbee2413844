package sequencer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// simJob is a job and its client.
type simJob struct {
	c       *sim
	number  int
	sub     sequencer.Submission
	finals  uint32 // number of cleanup tasks, which come last
	asking  bool
	acked   bool
	unknown bool // the outcome of its submission is unknown
	id      fsm.JobID
	turns   uint64
}

func newSimJob(c *sim, number int) *simJob {
	j := &simJob{c: c, number: number}
	c.after(c.upTo(c.opts.Storm/2), j.turn)
	return j
}

// simAction is a request of clients for an acknowledged job. To add one, write
// a method and add it to simActions with a weight.
type simAction struct {
	name   string
	weight int
	do     func(*simJob, *simTerm)
}

var simActions = []simAction{
	{"look", 60, func(*simJob, *simTerm) {}},
	{"submit-again", 10, (*simJob).submit},
	{"submit-other", 4, (*simJob).submitOther},
	{"cancel-job", 2, (*simJob).cancelJob},
	{"cancel-job-now", 2, (*simJob).cancelJobNow},
	{"cancel-task", 8, (*simJob).cancelTask},
	{"retry", 8, (*simJob).retry},
	{"purge", 3, (*simJob).purge},
	{"update", 8, (*simJob).update},
	{"audit", 12, (*simJob).audit},
}

// turn is an event of the client: it submits until the job is acknowledged, and
// then sends other requests at random times.
func (j *simJob) turn() {
	c := j.c
	if c.calm && j.acked {
		return
	}
	if j.sub.Key == "" {
		j.sub, j.finals = c.submission(j.number)
	}
	t := c.anyTerm()
	if t == nil || j.asking {
		c.after(c.upTo(500*time.Millisecond), j.turn)
		return
	}
	if !j.acked {
		j.unacknowledged()
		j.submit(t)
	} else {
		a := pick(c.rng, simActions, func(a simAction) int { return a.weight })
		c.note(a.name, uint64(j.number), t.number)
		a.do(j, t)
	}
	c.after(c.upTo(800*time.Millisecond), j.turn)
}

// ask is a call whose answer is checked only if the job was not retried
// meanwhile.
func (j *simJob) ask(t *simTerm, ask func(context.Context, *sequencer.Sequencer) error, done func(), not func(error)) {
	c := j.c
	revives := c.revives[j.id]
	c.call(t, 5*time.Second, ask, func(err error) {
		if err == nil && done != nil && c.revives[j.id] == revives {
			done()
		}
		if err != nil && not != nil {
			not(err)
		}
	})
}

// definite reports whether an error means that nothing was done.
func definite(err error) bool {
	_, busy := errors.AsType[*sequencer.BusyError](err)
	_, rejected := errors.AsType[*sequencer.RejectedError](err)
	return busy || rejected || errors.Is(err, sequencer.ErrTermEnded)
}

func (j *simJob) submit(t *simTerm) {
	c := j.c
	c.note("submit", uint64(j.number), t.number)
	j.asking = true
	var r sequencer.SubmitResult
	c.call(t, 5*time.Second, func(ctx context.Context, s *sequencer.Sequencer) (err error) {
		r, err = s.Submit(ctx, j.sub)
		return err
	}, func(err error) {
		j.asking = false
		switch {
		case err == nil:
			if j.acked && r.ID != j.id {
				c.fail("one key became jobs %d and %d", j.id, r.ID)
			}
			j.acked, j.id = true, r.ID
		case errors.Is(err, sequencer.ErrOutcomeUnknown) || errors.Is(err, context.Canceled):
			j.unknown = true
		case !definite(err):
			c.fail("submission: %v", err)
		default:
			if rejected, ok := errors.AsType[*sequencer.RejectedError](err); ok && rejected.Reason != fsm.AboveLevel && rejected.Reason != fsm.LimitNotFound && rejected.Reason != fsm.QueueNotFound { // before an upgrade, or after a deletion
				c.fail("submission rejected: %v", rejected)
			}
		}
	})
}

// submitOther uses the key for another job.
func (j *simJob) submitOther(t *simTerm) {
	other := j.sub
	other.Digest[15]++
	j.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error {
		_, err := s.Submit(ctx, other)
		return err
	}, func() { j.c.fail("key %s was accepted for two jobs", j.sub.Key) }, func(err error) {
		if r, ok := errors.AsType[*sequencer.RejectedError](err); ok && r.Reason != fsm.KeyConflict {
			j.c.fail("another job with a known key: %v", err)
		}
	})
}

// unacknowledged checks that a job doesn't exist if all answers said that.
func (j *simJob) unacknowledged() {
	if j.unknown {
		return
	}
	j.c.log.truth.Read(func(s *fsm.State, _ uint64) {
		if id, _, sealed, known := s.Key(j.sub.Key); known && sealed {
			j.c.fail("job %d exists, but its client got only definite errors", id)
		}
	})
}

func (j *simJob) cancelJob(t *simTerm) {
	j.turns++
	why := fmt.Sprintf("reason %d", j.turns)
	j.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error {
		_, err := s.CancelJob(ctx, j.id, why)
		return err
	}, func() {
		j.c.log.truth.Read(func(s *fsm.State, _ uint64) {
			if job, ok := s.Job(j.id); ok && job.State != fsm.JobCancelled && (!job.CleaningUp() || job.Outcome != fsm.JobCancelled) {
				j.c.fail("cancelled job %d is %v", j.id, job.State)
			}
		})
	}, func(err error) {
		if definite(err) {
			j.c.notCancelled[why] = j.id
		}
	})
}

// cancelJobNow ends the cleanup tasks, too.
func (j *simJob) cancelJobNow(t *simTerm) {
	j.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error {
		_, err := s.CancelJobNow(ctx, j.id, "enough")
		return err
	}, func() {
		if !j.c.jobEnded(j.id) {
			j.c.fail("job %d was cancelled with its cleanup tasks and still runs", j.id)
		}
	}, nil)
}

func (j *simJob) someTask() fsm.TaskRef {
	return fsm.TaskRef{Job: j.id, Index: uint32(j.c.rng.IntN(int(j.sub.Total)))}
}

func (j *simJob) cancelTask(t *simTerm) {
	task := j.someTask()
	j.ask(t, func(ctx context.Context, s *sequencer.Sequencer) error {
		_, err := s.CancelTask(ctx, task, "enough")
		return err
	}, func() {
		j.c.log.truth.Read(func(s *fsm.State, _ uint64) {
			if v, ok := s.Task(task); ok && v.State != fsm.Cancelled {
				j.c.fail("cancelled task %v is %v", task, v.State)
			}
		})
	}, nil)
}

// retry resumes the job with all failed tasks, or with one.
func (j *simJob) retry(t *simTerm) {
	var tasks []uint32
	if j.c.chance(50) {
		tasks = []uint32{j.someTask().Index}
	}
	j.change(t, func(ctx context.Context, s *sequencer.Sequencer, p fsm.Precondition) (sequencer.ChangeResult, error) {
		return s.Revive(ctx, fsm.Revive{Job: j.id, Tasks: tasks, Precondition: p}, true)
	}, nil)
}

func (j *simJob) purge(t *simTerm) {
	j.change(t, func(ctx context.Context, s *sequencer.Sequencer, p fsm.Precondition) (sequencer.ChangeResult, error) {
		return s.Purge(ctx, fsm.Purge{Job: j.id, Precondition: p}, true)
	}, func() {
		j.c.log.truth.Read(func(s *fsm.State, _ uint64) {
			if job, ok := s.Job(j.id); ok && job.State.Terminal() && job.Counts[fsm.Dead] > 0 {
				j.c.fail("purged dead letters of job %d still exist", j.id)
			}
		})
	})
}

// simChange is a change that its client repeats with one key.
type simChange struct {
	precondition fsm.Precondition
	do           func(context.Context, *sequencer.Sequencer, fsm.Precondition) (sequencer.ChangeResult, error)
	done         func() // checks the state after the first answer
	made         sequencer.ChangeResult
}

// change makes a change up to three times with one key, whatever the answers,
// and possibly at different leaders.
func (j *simJob) change(
	t *simTerm, do func(context.Context, *sequencer.Sequencer, fsm.Precondition) (sequencer.ChangeResult, error), done func(),
) {
	c := j.c
	c.changes++
	x := &simChange{precondition: fsm.Precondition{Key: fmt.Sprintf("change%d", c.changes), Digest: [16]byte{byte(j.id)}}, do: do, done: done}
	if c.chance(20) {
		x.precondition.IfVersion = uint64(1 + c.rng.IntN(3))
	}
	j.repeat(t, x, c.rng.IntN(3))
}

func (j *simJob) repeat(t *simTerm, x *simChange, again int) {
	c := j.c
	revives := c.revives[j.id]
	var r sequencer.ChangeResult
	c.call(t, 5*time.Second, func(ctx context.Context, s *sequencer.Sequencer) (err error) {
		r, err = x.do(ctx, s, x.precondition)
		return err
	}, func(err error) {
		if rejected, ok := errors.AsType[*sequencer.RejectedError](err); ok && rejected.Reason == fsm.KeyConflict {
			c.fail("repeating %s of job %d: %v", x.precondition.Key, j.id, err)
		}
		if err != nil {
			return
		}
		outcome := sequencer.ChangeResult{Version: r.Version, Purged: r.Purged}
		if x.made.Version != 0 && outcome != x.made {
			c.fail("%s of job %d was answered with %+v, then with %+v", x.precondition.Key, j.id, x.made, outcome)
		}
		x.made = outcome
		if !r.Existed && x.done != nil && c.revives[j.id] == revives {
			x.done()
		}
	})
	if again > 0 {
		c.after(c.upTo(3*time.Second), func() {
			if t := c.anyTerm(); t != nil && !c.calm {
				j.repeat(t, x, again-1)
			}
		})
	}
}

// update changes the job, or one of its tasks that may have started, once or
// twice with one key, and checks the answers.
func (j *simJob) update(t *simTerm) {
	c := j.c
	x := sequencer.Change{Generated: c.chance(50), Delay: c.upTo(4*time.Second) - time.Second}
	x.Job, x.WholeJob = j.id, c.chance(30)
	if !x.WholeJob {
		x.Task = j.someTask().Index
	}
	if c.chance(70) {
		x.Key = fmt.Sprintf("update%d", c.rng.IntN(20))
		x.Digest = [16]byte{byte(c.rng.IntN(2)), byte(j.id)}
	}
	x.Set = fsm.UpdateFields(1 + c.rng.IntN(15)) // no body: the simulation has none
	x.Priority, x.MaxRetries, x.TimeoutMS = dtaskv1.Priority(1+c.rng.IntN(4)), uint32(c.rng.IntN(4)), 500+c.rng.Int64N(20_000)
	for range 1 + c.rng.IntN(2) {
		var r sequencer.ChangeResult
		c.call(t, 5*time.Second, func(ctx context.Context, s *sequencer.Sequencer) (err error) {
			r, err = s.Update(ctx, x)
			return err
		}, func(err error) {
			if rejected, ok := errors.AsType[*sequencer.RejectedError](err); ok && rejected.Reason == fsm.Malformed {
				c.fail("update: %v", err)
			} else if err == nil {
				c.updated(x, r)
			}
		})
	}
}

// updated checks the answer to an update.
func (c *sim) updated(x sequencer.Change, r sequencer.ChangeResult) {
	c.log.truth.Read(func(s *fsm.State, _ uint64) {
		if job, ok := s.Job(x.Job); ok && (job.Version < r.Version || r.Version < 2) {
			c.fail("an update made version %d of job %d, which has version %d", r.Version, x.Job, job.Version)
		}
		if of, known := s.ChangeOf(x.Key); known && (of.Version != r.Version || of.Job != x.Job) {
			c.fail("an update of job %d with the key %s made version %d; its key belongs to %+v", x.Job, x.Key, r.Version, of)
		}
	})
}

// audit compares the soft state with the one that a new leader would rebuild. Timers for a time
// of day are those of the wall clock when they were set: they differ after it was set.
func (j *simJob) audit(t *simTerm) {
	if t.deposed || j.c.clocks != nil {
		return
	}
	j.c.call(t, 5*time.Second, func(ctx context.Context, s *sequencer.Sequencer) error { return s.Audit(ctx) }, func(err error) {
		if err != nil {
			j.c.fail("the soft state differs from the one that a new term would rebuild:\n%v", err)
		}
	})
}

// submission returns a random job.
func (c *sim) submission(number int) (sub sequencer.Submission, finals uint32) {
	if c.origins.isCrowd(number) {
		return c.origins.crowd(number), 0
	}
	h := &dtaskv1.JobHeader{Name: fmt.Sprintf("job%d", number), Priority: dtaskv1.Priority(1 + c.rng.IntN(4))}
	if c.chance(50) {
		h.OnFailure = dtaskv1.OnFailure_ON_FAILURE_CONTINUE
	}
	if c.chance(30) {
		h.MaxFailures = uint32(c.rng.IntN(6))
	}
	if c.chance(10) {
		h.DeadlineMs = 1000 + c.rng.Int64N(30_000)
	}
	if c.chance(50) {
		h.Webhook, c.webhooks[h.GetName()] = "http://127.0.0.1:1/", true
	}
	if c.chance(25) {
		h.Needs = c.needs()
	}
	c.times(h)
	c.origins.set(h)
	for range 1 + c.rng.IntN(3) {
		h.Policies = append(h.Policies, c.policy())
	}
	ordinary := len(h.GetPolicies())
	final := c.policy()
	final.Finally, final.ReuseMs = true, 0
	h.Policies = append(h.Policies, final)
	if c.chance(30) {
		finals = uint32(1 + c.rng.IntN(3))
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(h)
	if err != nil {
		c.fail("%v", err)
	}
	sub = sequencer.Submission{Key: h.GetName(), Header: raw, Total: uint32(1+c.rng.IntN(30)) + finals, Generated: c.chance(50)}
	copy(sub.Digest[:], h.GetName())
	conditional := c.chance(30)
	heads := make([]uint32, sub.Total) // tasks through which others depend on a task
	for i := range heads {
		heads[i] = uint32(i)
	}
	for i := uint32(0); i < sub.Total; {
		if rest := sub.Total - finals - min(i, sub.Total-finals); rest > 1 && c.chance(20) {
			chunk := c.array(h, ordinary, heads, i, min(rest, uint32(2+c.rng.IntN(8))), conditional)
			i += uint32(chunk.Len())
			sub.Sum = chunk.Sum(sub.Sum)
			sub.Chunks = append(sub.Chunks, chunk)
			continue
		}
		b := fsm.NewChunkBuilder(i)
		for n := 1 + c.rng.IntN(10); n > 0 && i < sub.Total; n-- {
			first, policy := uint32(0), c.rng.IntN(ordinary)
			if i >= sub.Total-finals {
				first, policy = sub.Total-finals, ordinary
			}
			deps := c.dependencies(heads, first, i)
			b.AddConditional(fmt.Sprintf("t%d", i), uint32(policy), deps, c.conditions(conditional, len(deps)), c.body(h.GetPolicies()[policy]))
			i++
		}
		chunk := b.Chunk()
		sub.Sum = chunk.Sum(sub.Sum)
		sub.Chunks = append(sub.Chunks, chunk)
	}
	return sub, finals
}

// needs returns one or two jobs that a job needs. As the API does for jobs of history,
// it tells how they ended, in case that they have left the state.
func (c *sim) needs() (list []*dtaskv1.JobNeed) {
	for range 1 + c.rng.IntN(2) {
		if j := c.jobs[c.rng.IntN(len(c.jobs))]; j.acked {
			list = append(list, &dtaskv1.JobNeed{
				Job: uint64(j.id), Condition: []dtaskv1.Condition{1, 2, 4}[c.rng.IntN(3)], EndedAs: dtaskv1.JobState_JOB_STATE_COMPLETED,
			})
		}
	}
	return list
}

// array returns an array of n tasks from index i on, mostly with a limit.
func (c *sim) array(h *dtaskv1.JobHeader, ordinary int, heads []uint32, i, n uint32, conditional bool) *fsm.Chunk {
	a := fsm.Array{
		Name: fmt.Sprintf("a%d", i), Policy: uint32(c.rng.IntN(ordinary)), Deps: c.dependencies(heads, 0, i),
		Ranges: []fsm.IndexRange{{Step: 1, Count: n}}, Items: n, Chunk: 1, MaxParallel: uint32(c.rng.IntN(4)),
	}
	a.Conditions = c.conditions(conditional, len(a.Deps))
	a.Body = c.body(h.GetPolicies()[a.Policy])
	for k := i; k < i+n; k++ {
		heads[k] = i
	}
	return fsm.NewArrayChunk(i, a, nil)
}

// conditions returns random conditions of n dependencies, if there are some.
func (c *sim) conditions(some bool, n int) (list []fsm.Condition) {
	for range n {
		if !some {
			return nil
		}
		list = append(list, fsm.Condition(c.rng.IntN(4)))
	}
	return list
}

// dependencies returns up to three tasks between first and i, ascending.
func (c *sim) dependencies(heads []uint32, first, i uint32) []uint32 {
	var deps []uint32
	for n := c.rng.IntN(4); n > 0 && i > first; n-- {
		d := first + uint32(c.rng.IntN(int(i-first)+2))
		if d < i && !slices.Contains(deps, heads[d]) {
			deps = append(deps, heads[d])
		}
	}
	slices.Sort(deps)
	return deps
}

// body returns the body of a task. Pure tasks of all jobs share a few keys.
func (c *sim) body(p *dtaskv1.TaskPolicy) []byte {
	if p.GetReuseMs() == 0 {
		return nil
	}
	body, err := proto.Marshal(&dtaskv1.TaskBody{ReuseKey: fmt.Sprintf("key%d", c.rng.IntN(8))})
	if err != nil {
		c.fail("%v", err)
	}
	return body
}

func (c *sim) policy() *dtaskv1.TaskPolicy {
	p := &dtaskv1.TaskPolicy{Type: "x", TimeoutMs: 500 + c.rng.Int64N(20_000)}
	if c.chance(80) {
		p.Retry = &dtaskv1.RetryPolicy{
			Max: uint32(c.rng.IntN(4)), InitialMs: 1 + c.rng.Int64N(1000), MultiplierPermille: 2000, MaxDelayMs: 5000, Jitter: c.chance(50),
		}
	}
	if c.chance(15) {
		p.ReuseMs = 1 + c.rng.Int64N(40_000)
	} else if c.chance(25) {
		p.Execution = dtaskv1.Execution_EXECUTION_AT_MOST_ONCE
	}
	if c.chance(15) {
		p.QueueTimeoutMs = 1000 + c.rng.Int64N(20_000)
		p.QueueTimeoutRequeues = c.chance(50)
	}
	if c.chance(20) {
		p.StartTimeoutMs = 1 + c.rng.Int64N(5000)
	}
	if c.chance(20) {
		p.HeartbeatTimeoutMs = 1000 + c.rng.Int64N(4000)
	}
	if c.chance(30) {
		p.Resources = map[string]int64{"cpu": 500 + c.rng.Int64N(1500)}
	}
	c.alternatives(p)
	c.placement(p)
	c.limits.use(p)
	if c.chance(30) {
		p.Priority = dtaskv1.Priority(1 + c.rng.IntN(4))
	}
	if p.Preemptible = c.chance(50); !p.GetPreemptible() && c.chance(20) {
		p.Priority = dtaskv1.Priority_PRIORITY_URGENT
	}
	return p
}
