package sequencer

import (
	"maps"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler"
	"github.com/dtask/dtask/scheduler/backoff"
)

// jobInfo is what the policies of a job mean to the scheduler and the timers.
// It is kept while the job has open tasks.
type jobInfo struct {
	policies []policyInfo                 // never changed; updates add some, with the reuse of one that is there
	pure     bool                         // one of them has a reuse
	limited  map[uint32]scheduler.ClassID // of arrays with max_parallel, by their first task
}

type policyInfo struct {
	class        scheduler.ClassID // of a task that is of no array with a limit: classOf
	demand       scheduler.Demand
	priority     scheduler.Priority
	queueTimeout time.Duration // 0 = none
	runTimeout   time.Duration
	beatTimeout  time.Duration // 0 = none
	killGrace    time.Duration
	atMostOnce   bool
	reuse        time.Duration // how long the result of a pure task is remembered; 0 = it is not pure
	rules        backoff.Rules
}

// likeness is what was read of the header that was read last.
type likeness struct {
	header   *dtaskv1.JobHeader
	policies []policyInfo
	pure     bool
}

// info gives the policies of a job, reading them when they are first needed; nil
// if there is no such job.
func (s *Sequencer) info(id fsm.JobID) *jobInfo {
	if j, ok := s.jobs[id]; ok {
		return j
	}
	job, ok := s.view.Job(id)
	if !ok {
		return nil
	}
	j := &jobInfo{}
	s.readPolicies(j, job)
	if !job.State.Terminal() { // else nobody would take it out again
		s.jobs[id] = j
	}
	return j
}

// policy gives the policy of a task; the zero one if the task is unknown.
func (s *Sequencer) policy(t fsm.TaskRef) *policyInfo {
	number, ok := s.view.PolicyNumber(t)
	if !ok {
		return &policyInfo{}
	}
	return s.numbered(t.Job, number)
}

// numbered gives a policy of a job by its number. Updates make new ones.
func (s *Sequencer) numbered(id fsm.JobID, number uint32) *policyInfo {
	j := s.info(id)
	if int(number) >= len(j.policies) {
		job, _ := s.view.Job(id)
		s.readPolicies(j, job)
	}
	return &j.policies[number]
}

// readPolicies reads what is not read yet. Jobs that are submitted together mostly have the same
// header, of which the policies are read once.
func (s *Sequencer) readPolicies(j *jobInfo, job fsm.Job) {
	if len(j.policies) == 0 && s.like.header == job.Header {
		j.policies, j.pure = slices.Clip(s.like.policies), s.like.pure
	}
	for n := uint32(len(j.policies)); n < job.Policies(); n++ { //nolint:gosec // bounded by the job
		p := s.policyInfo(job.Header, job.Policy(n))
		j.policies, j.pure = append(j.policies, p), j.pure || p.reuse > 0
	}
	s.like = likeness{job.Header, j.policies[:len(job.Header.GetPolicies())], j.pure}
}

func (s *Sequencer) policyInfo(h *dtaskv1.JobHeader, p *dtaskv1.TaskPolicy) policyInfo {
	priority := p.GetPriority()
	if priority == dtaskv1.Priority_PRIORITY_UNSPECIFIED {
		priority = h.GetPriority()
	}
	if priority == dtaskv1.Priority_PRIORITY_UNSPECIFIED {
		priority = dtaskv1.Priority_PRIORITY_NORMAL
	}
	return policyInfo{
		class:        s.sched.Class(demand(p)),
		demand:       demand(p),
		priority:     scheduler.Priority(priority), //nolint:gosec // the numbers are the same
		queueTimeout: ms(p.GetQueueTimeoutMs()),
		runTimeout:   ms(p.GetTimeoutMs()),
		beatTimeout:  ms(p.GetHeartbeatTimeoutMs()),
		killGrace:    ms(p.GetKillGraceMs()),
		atMostOnce:   p.GetExecution() == dtaskv1.Execution_EXECUTION_AT_MOST_ONCE,
		reuse:        ms(p.GetReuseMs()),
		rules:        rules(p.GetRetry()),
	}
}

// classOf is the class of a task. An array with max_parallel has one of its own,
// while its job is open.
func (s *Sequencer) classOf(ref fsm.TaskRef, p *policyInfo) scheduler.ClassID {
	a, ok := s.view.ArrayTask(ref)
	if !ok || a.MaxParallel == 0 {
		return p.class
	}
	j := s.jobs[ref.Job]
	if j == nil {
		return p.class // its job has ended: nothing of it begins any more
	}
	id, known := j.limited[a.First]
	if !known {
		d := p.demand
		d.Limit, d.Group = a.MaxParallel, scheduler.TaskRef{Job: uint64(ref.Job), Index: a.First}
		if j.limited == nil {
			j.limited = make(map[uint32]scheduler.ClassID)
		}
		id = s.sched.Class(d)
		j.limited[a.First] = id
	}
	return id
}

func demand(p *dtaskv1.TaskPolicy) scheduler.Demand {
	d := scheduler.Demand{NoPrefetch: p.GetExecution() == dtaskv1.Execution_EXECUTION_AT_MOST_ONCE}
	for _, name := range slices.Sorted(maps.Keys(p.GetResources())) {
		d.Resources = append(d.Resources, scheduler.Quantity{Name: name, Amount: p.GetResources()[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(p.GetRequire())) {
		d.Labels = append(d.Labels, scheduler.Label{Name: name, Value: p.GetRequire()[name]})
	}
	return d
}

// rules reads a retry policy. Classes were checked when the job was submitted;
// one that this version does not know matches nothing.
func rules(p *dtaskv1.RetryPolicy) backoff.Rules {
	classes := func(texts []string) []backoff.Class {
		var list []backoff.Class
		for _, t := range texts {
			if c, err := backoff.ParseClass(t); err == nil {
				list = append(list, c)
			}
		}
		return list
	}
	return backoff.Rules{
		Max:    int(p.GetMax()),
		On:     classes(p.GetOn()),
		Except: classes(p.GetExcept()),
		Backoff: backoff.Policy{
			Initial:    ms(p.GetInitialMs()),
			Max:        ms(p.GetMaxDelayMs()),
			Multiplier: float64(p.GetMultiplierPermille()) / 1000,
			Jitter:     p.GetJitter(),
		},
	}
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
