package sequencer

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

const (
	// sweepInterval is how often timeouts and retention are checked.
	sweepInterval = 250 * time.Millisecond
	// pauseThreshold is a delay of a sweep that only a paused process explains.
	pauseThreshold = time.Second
	// maxFireCost bounds the overdue work that one entry releases, because requests that arrive
	// meanwhile wait for that entry. A timer costs 1, and that of a tick tickCost, because it
	// makes a job.
	maxFireCost = 2000
	tickCost    = 4
)

// Sequencer is one term of leadership. Its exported methods are safe for
// concurrent use; the goroutine of Run executes what they ask for, and all
// other methods.
type Sequencer struct {
	cfg     Config
	inbox   *inbox
	backlog backlog
	view    *fsm.State // the replicated state with all entries in flight applied
	batches batcher
	pipe    *pipeline
	opened  chan struct{} // closed when the first entry of the term is committed
	more    bool          // the last batch was full, or the inbox has items
	sweeps  sweepClock
	paused  atomic.Bool // assignment is paused
	founded bool        // this is the first term of the cluster; constant
	idle    idleDetector

	// The soft state of the term, by subject.
	timers    timers
	workers   workerTable
	liveness  liveness
	timeouts  attemptTimeouts
	reports   reportHandler
	dispatch  dispatcher
	stealing  stealing
	preempt   preemption
	uploads   uploads
	schedules schedules
	gates     gates
	queues    queues
	fencing   fencing
	retention retention
	questions []*question // asked and not answered
}

// New returns the sequencer of a term. Its view is a fork of the machine's
// state, which must have applied everything that was committed before the term.
func New(cfg Config) (*Sequencer, error) {
	cfg.Defaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	now := time.Now()
	s := &Sequencer{cfg: cfg, inbox: newInbox(cfg.InboxReports, cfg.InboxOthers), opened: make(chan struct{})}
	c := &s.cfg
	s.pipe = newPipeline(c)
	s.sweeps.interval = cfg.TimeScale.Scale(sweepInterval)
	s.batches = batcher{cfg: c, origin: now.Add(-time.Millisecond)} // before the first monoTime: 0 means never
	sched := scheduler.New(cfg.Seed)
	rates := &limitRates{
		sched: sched, timers: &s.timers, since: now,
		set: make(map[string]bool), byUse: make(map[string]*limitBucket), byID: make(map[uint64]*limitBucket),
	}
	policies := &policyTable{sched: sched, rates: rates, jobs: make(map[fsm.JobID]*jobPolicies)}
	results := &resultCache{policies: policies}
	s.workers = workerTable{
		cfg: c, sched: sched, policies: policies, byID: make(map[fsm.WorkerID]*worker), stopping: make(map[fsm.JobID]int),
		settling: settling{cfg: c, sched: sched, timers: &s.timers},
		running:  observations{m: make(map[fsm.JobID]map[uint32]Observation)},
		leases:   &leases{duration: cfg.Lease, sched: sched, policies: policies, timers: &s.timers, byRef: make(map[fsm.AttemptRef]lease)},
	}
	s.liveness = liveness{cfg: c, workers: &s.workers, start: now}
	outcomes := &outcomes{cfg: c, policies: policies, workers: &s.workers, results: results}
	s.fencing = fencing{workers: &s.workers}
	s.timeouts = attemptTimeouts{cfg: c, workers: &s.workers, policies: policies, outcomes: outcomes}
	s.reports = reportHandler{cfg: c, workers: &s.workers, outcomes: outcomes}
	s.dispatch = dispatcher{
		sched: sched, policies: policies, timers: &s.timers, workers: &s.workers, results: results,
		cleanups: heldCleanups{until: make(map[fsm.TaskRef]time.Time)}, waits: waitSampler{since: make(map[fsm.TaskRef]time.Time)},
		queued: queueTimeouts{until: make(map[fsm.TaskRef]time.Time)}, queueWaits: queueWaits{byQueue: make(map[string]*lastWaits)},
	}
	s.stealing = stealing{sched: sched, workers: &s.workers}
	s.preempt = preemption{sched: sched, workers: &s.workers, since: now}
	s.retention = retention{cfg: c, workers: &s.workers}
	s.uploads = uploads{cfg: c, retention: &s.retention, byKey: make(map[string]*submission)}
	s.schedules = schedules{cfg: c, timers: &s.timers, uploads: &s.uploads, byID: make(map[fsm.ScheduleID]*schedule)}
	s.gates = gates{cfg: c, timers: &s.timers, workers: &s.workers, keys: newSharedKeys(), timed: make(map[fsm.JobID]time.Time)}
	s.dispatch.schedules, s.dispatch.gates = &s.schedules, &s.gates
	s.queues = queues{sched: sched, policies: policies, workers: &s.workers, dispatch: &s.dispatch, buckets: make(map[string]*bucket)}
	s.uploads.queues = &s.queues
	s.view, _ = cfg.Machine.Fork()
	s.founded = s.view.ClusterID() == ""
	return s, nil
}

// Term returns the Raft term that this sequencer leads.
func (s *Sequencer) Term() uint64 { return s.cfg.Term }

// Ready returns a channel that is closed when the first entry of the term is
// committed, and the sequencer serves workers and clients.
func (s *Sequencer) Ready() <-chan struct{} { return s.opened }

// StopAssigning pauses the assignment of tasks, or resumes it.
func (s *Sequencer) StopAssigning(stop bool) {
	s.paused.Store(stop)
	s.inbox.signal()
}

// Run leads until ctx is done or an entry fails, and returns why. Everything
// that it started has ended then, and all requests are answered.
func (s *Sequencer) Run(ctx context.Context) error {
	var committer sync.WaitGroup
	committer.Go(s.pipe.commit)
	err := s.lead(ctx)
	close(s.pipe.commits)
	committer.Wait()
	s.finish()
	return err
}

// finish answers all requests that wait, after the last entry in flight was
// settled.
func (s *Sequencer) finish() {
	s.inbox.close(ErrTermEnded)
	s.backlog.refuse(ErrTermEnded)
	for _, q := range s.questions {
		q.refuse(ErrTermEnded)
	}
	for _, w := range s.workers.byID {
		if w.session != nil {
			w.session.Close(ErrTermEnded)
		}
	}
}

func (s *Sequencer) lead(ctx context.Context) error {
	if err := s.startTerm(ctx); err != nil {
		return err
	}
	tick := time.NewTimer(s.untilNext())
	defer tick.Stop()
	for {
		var slot chan<- struct{} // nil: there is nothing to do
		if s.hasWork() {
			slot = s.pipe.slots
		} else {
			tick.Reset(s.untilNext())
		}
		select {
		case slot <- struct{}{}:
			s.cycle()
		case <-s.inbox.wake:
			s.more = true
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.pipe.failed:
			return s.pipe.failure
		}
	}
}

// hasWork reports whether a cycle would do anything.
func (s *Sequencer) hasWork() bool {
	return s.more || !s.backlog.empty() || s.untilNext() <= 0
}

// untilNext returns the time until something must be done without a request.
func (s *Sequencer) untilNext() time.Duration {
	d := s.sweeps.until(time.Now())
	if at, ok := s.timers.next(); ok {
		d = min(d, time.Until(at))
	}
	if at, ok := s.stealing.next(); ok && !s.paused.Load() {
		d = min(d, time.Until(at))
	}
	if at, ok := s.preempt.next(); ok && !s.paused.Load() {
		d = min(d, time.Until(at))
	}
	if at, ok := s.dispatch.next(); ok && !s.paused.Load() {
		d = min(d, time.Until(at))
	}
	return d
}

// cycle proposes one entry of everything that waits. The caller has taken a
// slot of the pipeline.
func (s *Sequencer) cycle() {
	select {
	case <-s.inbox.wake: // its items are taken below
	default:
	}
	s.shareMemory()
	b := s.batches.next(s.view)
	s.backlog.run(s.inbox, b, classReport)
	s.backlog.run(s.inbox, b, classWorker)
	s.absorb(b)
	s.fireTimers(b)
	s.sweep(b)
	s.backlog.run(s.inbox, b, classCancel)
	s.absorb(b)
	s.backlog.run(s.inbox, b, classSubmit)
	s.absorb(b)
	s.gates.run(b)
	s.absorb(b)
	s.dispatch.releaseCleanups(b)
	for s.dispatch.reuse(b) {
		s.absorb(b)
	}
	if !s.paused.Load() {
		s.dispatch.assign(b)
		s.stealing.run(b)
		s.preempt.run(b)
	}
	s.answerQuestions(b)
	s.more = b.full() || len(s.questions) > 0
	s.pipe.propose(b)
}

// absorb applies the effects of the operations since the last call to the soft
// state.
func (s *Sequencer) absorb(b *batch) {
	s.fencing.revoked(b) // first: what it requeues becomes ready below
	for _, id := range b.fx.Sealed {
		job, _ := b.view.Job(id)
		s.retention.tasks += uint64(job.Total)
		s.timers.addDeadline(b, job)
		s.gates.addExpiry(b, &job)
	}
	s.uploads.started = 0
	for _, id := range b.fx.Revived {
		s.retention.remove(id)
		job, _ := b.view.Job(id)
		s.timers.addDeadline(b, job)
		s.gates.addExpiry(b, &job)
	}
	for _, id := range b.fx.Gated {
		s.gates.reach(b, id)
	}
	for _, h := range b.fx.EndedAttempts { // before cleanup tasks, which wait for them, become ready
		s.workers.attemptEnded(b, h)
	}
	s.dispatch.supersedeRevived(b, b.fx.RevivedTasks)
	for _, id := range b.fx.MovedJobs {
		s.queues.moved(b, map[fsm.JobID]bool{id: true})
		s.dispatch.reorderJob(b, id)
	}
	for _, run := range b.fx.Ready {
		s.dispatch.pushRun(b, run)
	}
	for _, d := range b.fx.Scheduled {
		s.timers.addDue(b, d.AttemptRef, d.DueMS, math.MaxInt64)
	}
	for _, id := range b.fx.ReorderedJobs {
		s.dispatch.reorderJob(b, id)
	}
	s.dispatch.reorder(b, b.fx.Reordered)
	for i, id := range b.fx.EndedJobs {
		if len(b.fx.Revived) > 0 && slices.Contains(b.fx.EndedJobs[:i], id) {
			continue // it ended, was resumed and ended again
		}
		s.jobEnded(b, id)
	}
	notify(b)
	b.fx.Reset()
}

// jobEnded removes the soft state of a job that has ended, unless it was
// resumed already.
func (s *Sequencer) jobEnded(b *batch, id fsm.JobID) {
	job, ok := b.view.Job(id)
	if ok && !job.State.Terminal() {
		if job.Gated {
			s.gates.keys.ended(b, &job, &s.workers) // what ran before may still be stopping
		}
		return
	}
	s.dispatch.policies.remove(id)
	if !ok {
		return
	}
	s.gates.keys.ended(b, &job, &s.workers)
	s.retention.add(&job)
	s.dispatch.stale += uint64(job.Total - job.Counts[fsm.Completed])
	s.workers.running.forgetJob(id)
}

// sweepClock knows when the next sweep is due.
type sweepClock struct {
	interval time.Duration
	last     time.Time
}

func (c *sweepClock) until(now time.Time) time.Duration { return c.interval - now.Sub(c.last) }

// fireTimers executes the timers that are due.
func (s *Sequencer) fireTimers(b *batch) {
	for cost := 0; cost < maxFireCost && !b.full(); cost++ {
		t, ok := s.timers.due(b.now)
		if !ok {
			break
		}
		if t.kind == timerTick {
			cost += tickCost - 1
		}
		s.dispatch.fire(b, t)
	}
	s.absorb(b) // tasks that became ready meanwhile are ahead of those that are requeued
	s.dispatch.requeue(b)
}

// sweep checks timeouts and retention once per interval.
func (s *Sequencer) sweep(b *batch) {
	gap := -s.sweeps.until(b.now)
	if gap < 0 || b.full() {
		return
	}
	s.sweeps.last = b.now
	if gap > s.cfg.TimeScale.Scale(pauseThreshold) {
		s.liveness.extendDeadlines(b.now, gap)
	}
	s.liveness.sweep(b)
	s.timeouts.sweep(b)
	s.retention.sweep(b)
	s.dispatch.sweep(b)
	s.schedules.sweep(b)
	s.gates.sweep(b)
	s.timers.sweep(b)
	s.workers.gauge()
	s.absorb(b)
}
