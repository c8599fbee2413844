package api

import (
	"strings"
	"sync"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// isTerminal reports whether a job in a shown state has finished.
func isTerminal(state dtaskv1.JobState) bool {
	switch state {
	case dtaskv1.JobState_JOB_STATE_COMPLETED, dtaskv1.JobState_JOB_STATE_FAILED, dtaskv1.JobState_JOB_STATE_CANCELLED:
		return true
	case dtaskv1.JobState_JOB_STATE_UNSPECIFIED, dtaskv1.JobState_JOB_STATE_PENDING, dtaskv1.JobState_JOB_STATE_RUNNING:
	}
	return false
}

// The names of the two task states that are derived, not stored.
const (
	nameRunning    = "running"
	nameAggregated = "aggregated"
)

// A jobView is a job as it was read, with what is derived.
type jobView struct {
	job      fsm.Job
	observed uint32 // running tasks that job.Running doesn't count
	index    uint64 // of the state
	changed  uint64 // index of the job's last change

	counted    bool // aggregated is known
	aggregated uint32
}

// maxInlineCount is how many tasks of a job are counted while the machine's lock is
// held. Most jobs are small, and a fork for each would cost more than the count.
const maxInlineCount = 256

// readJob reads a job. It holds the machine's lock while it reads the running tasks,
// and all tasks of a small job.
func (s *Server) readJob(id fsm.JobID) (jobView, error) {
	observed := s.observed(id)
	var v jobView
	var ok bool
	s.cfg.Machine.Read(func(st *fsm.State, index uint64) {
		v.index = index
		if v.job, ok = st.Job(id); ok {
			v.observed = countObserved(st, v.job, observed)
			v.changed = st.JobChanged(id)
			if v.job.State == fsm.JobCompleted && v.job.Total <= maxInlineCount {
				v.counted, v.aggregated = true, st.Aggregated(id)
			}
		}
	})
	if ok {
		return v, nil
	}
	head, ok, err := s.archivedJob(id)
	if err != nil {
		return v, err
	}
	if !ok {
		return v, s.missingJob(id)
	}
	return archivedView(&head, v.index), nil
}

// archivedView is a job of history, read with a state of this index.
func archivedView(head *fsm.Head, index uint64) jobView {
	return jobView{job: head.Job, index: index, changed: head.Changed, counted: true, aggregated: head.Aggregated}
}

// outline shows a job without what was submitted with it and without maps, which
// cost more than all the rest.
func (v *jobView) outline() *dtaskv1.Job {
	j := &v.job
	shown := &dtaskv1.Job{
		Id: formatJobID(j.ID), Priority: j.Priority, Version: j.Version, State: fsm.ProtoJobState(j.State),
		SubmittedAt: j.SubmittedMS, StartedAt: j.StartedMS, CompletedAt: j.EndedMS,
		TasksTotal: j.Total, TasksCompleted: j.Counts[fsm.Completed], TasksFailed: j.Failed(),
		Retries: j.Retries, Requeues: j.Requeues, Error: j.Error, FailuresTolerated: j.Tolerated,
	}
	if j.CleaningUp() {
		shown.Outcome = fsm.ProtoJobState(j.Outcome)
		if j.Outcome == fsm.JobCancelled {
			shown.Error = strings.TrimSuffix("being cancelled, cleanup tasks are running: "+j.Error, ": ")
		}
	}
	return shown
}

// show shows a job. aggregated is the number of its completed tasks that are part of
// its result.
func (v *jobView) show(aggregated uint32) *dtaskv1.Job {
	shown, counts := v.outline(), v.job.Counts
	showHeader(shown, v.job.Header)
	showNeeds(shown, &v.job)
	showGate(shown, &v.job)
	shown.TasksByState = namedCounts(counts[:], v.job.Running+v.observed, aggregated)
	return shown
}

// namedCounts names the counts of task states, with the derived states taken out of
// the stored ones.
func namedCounts(byState []uint32, running, aggregated uint32) map[string]uint32 {
	names := make(map[string]uint32)
	for i, n := range byState {
		state := fsm.TaskState(i) //nolint:gosec // a byte
		switch state {
		case fsm.Assigned:
			n -= min(running, n)
		case fsm.Completed:
			n -= min(aggregated, n)
		case fsm.Blocked, fsm.Scheduled, fsm.Pending, fsm.Failed, fsm.Cancelled, fsm.Dead, fsm.Lost:
		}
		if n > 0 {
			names[state.String()] = n
		}
	}
	if running > 0 {
		names[nameRunning] = running
	}
	if aggregated > 0 {
		names[nameAggregated] = aggregated
	}
	return names
}

// showJob shows a job that was just read.
func (s *Server) showJob(v *jobView) (*dtaskv1.Job, error) {
	if v.counted {
		return v.show(v.aggregated), nil
	}
	aggregated, err := s.aggregated(nil, &v.job)
	if err != nil {
		return nil, err
	}
	return v.show(aggregated), nil
}

// currentJob reads and shows a job, with its freshness.
func (s *Server) currentJob(id fsm.JobID) (*dtaskv1.Job, error) {
	v, err := s.readJob(id)
	if err != nil {
		return nil, err
	}
	shown, err := s.showJob(&v)
	if err == nil {
		s.addMeta(shown, &v)
	}
	return shown, err
}

// addMeta adds what only a single job is shown with.
func (s *Server) addMeta(shown *dtaskv1.Job, v *jobView) {
	shown.Freshness, shown.Key = s.freshness(v.index), fsm.PlainKey(v.job.Key)
	shown.Digest = v.job.Digest[:]
}

// jobOf shows the job of tasks that are being read, with its levels and arrays.
func (s *Server) jobOf(r *taskReader, index uint64) (*dtaskv1.Job, error) {
	v := jobView{job: r.job, index: index, observed: countObserved(r.st, r.job, r.observed), counted: true}
	var err error
	if v.aggregated, err = s.aggregated(r.st, &v.job); err != nil {
		return nil, err
	}
	return s.showWhole(&v, s.levels(r), r.arrays()), nil
}

// showWhole shows a counted job with its levels and arrays.
func (s *Server) showWhole(v *jobView, levels []uint32, arrays []*dtaskv1.ArrayStatus) *dtaskv1.Job {
	shown := v.show(v.aggregated)
	s.addMeta(shown, v)
	shown.Levels, shown.Arrays = levels, arrays
	return shown
}

// isAggregated reports whether a task is part of its job's result: the task and the
// job have completed, and no other task depends on it.
func isAggregated(st *fsm.State, job fsm.JobState, t fsm.TaskRef, state fsm.TaskState) bool {
	return job == fsm.JobCompleted && state == fsm.Completed && st.Dependents(t) == 0
}

// aggregatedCache remembers how many tasks of completed jobs are part of their
// results: counting walks over the job, and the number changes only if the job is
// retried and completes again.
type aggregatedCache struct {
	mu sync.Mutex
	n  map[aggregatedKey]uint32
}

type aggregatedKey struct {
	id      fsm.JobID
	endedMS int64
}

// maxAggregatedCache bounds the entries of an aggregatedCache, of about 16 bytes each.
const maxAggregatedCache = 1 << 16

func (c *aggregatedCache) get(job *fsm.Job) (uint32, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.n[aggregatedKey{job.ID, job.EndedMS}]
	return n, ok
}

func (c *aggregatedCache) put(job *fsm.Job, n uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil || len(c.n) >= maxAggregatedCache {
		c.n = make(map[aggregatedKey]uint32)
	}
	c.n[aggregatedKey{job.ID, job.EndedMS}] = n
}

// aggregated counts the tasks of a job that are part of its result, in a state that has
// the job. If st is nil it forks one when needed: a completed job changes only if it is
// retried, so that a later state mostly has the same.
func (s *Server) aggregated(st *fsm.State, job *fsm.Job) (n uint32, err error) {
	if job.State != fsm.JobCompleted {
		return 0, nil
	}
	if known, ok := s.aggregatedCache.get(job); ok {
		return known, nil
	}
	if st == nil {
		if st, _, _, err = s.forkJob(job.ID); err != nil {
			return 0, err
		}
	}
	n = st.Aggregated(job.ID)
	s.aggregatedCache.put(job, n)
	return n, nil
}

// JobView shows a job of st as GetJob does, without what only sessions and history
// know; nil if st has no such job. The caller holds the machine's lock.
func JobView(st *fsm.State, id fsm.JobID) *dtaskv1.Job {
	job, ok := st.Job(id)
	if !ok {
		return nil
	}
	return (&jobView{job: job}).show(0)
}
