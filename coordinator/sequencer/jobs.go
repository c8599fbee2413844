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
	policies []policyInfo
}

type policyInfo struct {
	class        scheduler.ClassID
	priority     scheduler.Priority
	queueTimeout time.Duration // 0 = none
	runTimeout   time.Duration
	beatTimeout  time.Duration // 0 = none
	atMostOnce   bool
	rules        backoff.Rules
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
	for _, p := range job.Header.GetPolicies() {
		j.policies = append(j.policies, s.policyInfo(job.Header, p))
	}
	if !job.State.Terminal() { // else nobody would take it out again
		s.jobs[id] = j
	}
	return j
}

// policy gives the policy of a task; the zero one if the task is unknown.
func (s *Sequencer) policy(t fsm.TaskRef) policyInfo {
	v, ok := s.view.Task(t)
	if !ok {
		return policyInfo{}
	}
	return s.info(t.Job).policies[v.Policy]
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
		priority:     scheduler.Priority(priority), //nolint:gosec // the numbers are the same
		queueTimeout: ms(p.GetQueueTimeoutMs()),
		runTimeout:   ms(p.GetTimeoutMs()),
		beatTimeout:  ms(p.GetHeartbeatTimeoutMs()),
		atMostOnce:   p.GetExecution() == dtaskv1.Execution_EXECUTION_AT_MOST_ONCE,
		rules:        rules(p.GetRetry()),
	}
}

func demand(p *dtaskv1.TaskPolicy) scheduler.Demand {
	var d scheduler.Demand
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

// endedJob is a job that is kept for those who ask.
type endedJob struct {
	id    fsm.JobID
	tasks uint64
	atMS  int64
}

// jobEnded turns a job from work into memory.
func (s *Sequencer) jobEnded(id fsm.JobID) {
	delete(s.jobs, id)
	job, ok := s.view.Job(id)
	if !ok {
		return
	}
	s.ended = append(s.ended, endedJob{id: id, tasks: uint64(job.Total), atMS: job.EndedMS})
	s.endedTasks += uint64(job.Total)
	s.stale += uint64(job.Total - job.Counts[fsm.Completed])
	s.watch.forgetJob(id)
}

// forgetJobs removes what is kept too long or too much of, oldest first.
func (s *Sequencer) forgetJobs(b *batch) {
	var ids []fsm.JobID
	oldest := b.draft.NowMS() - s.cfg.KeepFor.Milliseconds()
	for len(s.ended) > 0 && len(ids) < 1000 {
		e := s.ended[0]
		if e.atMS > oldest && len(s.ended) <= s.cfg.KeepJobs && s.endedTasks <= s.cfg.KeepTasks {
			break
		}
		ids = append(ids, e.id)
		s.ended = s.ended[1:]
		s.endedTasks -= e.tasks
		s.tasks -= e.tasks
	}
	if len(ids) > 0 {
		b.draft.Do(&fsm.ForgetJobs{IDs: ids})
	}
}
