package api

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"sync"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// shownJobStates are the job states that callers see.
var shownJobStates = map[fsm.JobState]dtaskv1.JobState{
	fsm.JobUploading: dtaskv1.JobState_JOB_STATE_UNSPECIFIED, // never shown
	fsm.JobPending:   dtaskv1.JobState_JOB_STATE_PENDING,
	fsm.JobRunning:   dtaskv1.JobState_JOB_STATE_RUNNING,
	fsm.JobCompleted: dtaskv1.JobState_JOB_STATE_COMPLETED,
	fsm.JobFailed:    dtaskv1.JobState_JOB_STATE_FAILED,
	fsm.JobCancelled: dtaskv1.JobState_JOB_STATE_CANCELLED,
}

// The names of the two task states that are derived, not stored.
const (
	nameRunning    = "running"
	nameAggregated = "aggregated"
)

// A sight is a job as it was read, before it is shown.
type sight struct {
	job     fsm.Job
	running uint32 // assigned tasks that are heard to be running
	index   uint64 // of the state
	changed uint64 // index of the job's last change

	counted    bool // this is known already:
	aggregated uint32
}

// atOnce is how many tasks of a job are counted while the machine's lock is held.
// Most jobs are small, and a fork for each would cost more than the look.
const atOnce = 256

// look reads a job. It holds the machine's lock for as long as it takes to look
// at the running tasks, or at those of a small job.
func (s *Server) look(id fsm.JobID) (sight, error) {
	seen := s.observed(id)
	var v sight
	var ok bool
	s.cfg.Machine.Read(func(st *fsm.State, index uint64) {
		v.index = index
		if v.job, ok = st.Job(id); ok {
			v.running = countRunning(st, v.job, seen)
			v.changed = st.JobChanged(id)
			if v.job.State == fsm.JobCompleted && v.job.Total <= atOnce {
				v.counted, v.aggregated = true, leaves(st, &v.job, 0, v.job.Total)
			}
		}
	})
	if ok {
		return v, nil
	}
	head, ok, err := s.archived(id)
	if err != nil {
		return v, err
	}
	if !ok {
		return v, s.missing(id)
	}
	v.job, v.counted, v.aggregated, v.changed = head.Job, true, head.Aggregated, head.Changed
	return v, nil
}

// countRunning is how many of the observed tasks still are what was observed.
func countRunning(st *fsm.State, job fsm.Job, seen map[uint32]sequencer.Observation) uint32 {
	n := uint32(0)
	if job.Counts[fsm.Assigned] == 0 {
		return 0
	}
	for i, o := range seen {
		t, ok := st.Task(fsm.TaskRef{Job: job.ID, Index: i})
		if ok && t.State == fsm.Assigned && t.Attempt == o.Attempt {
			n++
		}
	}
	return n
}

// outline makes the view of a job without what was submitted with it, and without the
// maps, which take longer than all the rest.
func outline(v sight) *dtaskv1.Job {
	j := &v.job
	view := &dtaskv1.Job{
		Id: strconv.FormatUint(uint64(j.ID), 10), Priority: j.Priority, Version: j.Version, State: shownJobStates[j.State],
		SubmittedAt: j.SubmittedMS, StartedAt: j.StartedMS, CompletedAt: j.EndedMS,
		TasksTotal: j.Total, TasksCompleted: j.Counts[fsm.Completed], TasksFailed: j.Failed(),
		Retries: j.Retries, Recovered: j.Recovered, Error: j.Error, FailuresTolerated: j.Tolerated,
	}
	if j.CleaningUp() {
		view.Outcome = shownJobStates[j.Outcome]
		if j.Outcome == fsm.JobCancelled {
			view.Error = strings.TrimSuffix("being cancelled, its clean-up tasks run: "+j.Error, ": ")
		}
	}
	return view
}

// show makes the view of a job. aggregated is the number of its completed tasks
// that are part of its result.
func show(v sight, aggregated uint32) *dtaskv1.Job {
	j, view := &v.job, outline(v)
	view.Name, view.Owner, view.Labels = j.Header.GetName(), j.Header.GetOwner(), maps.Clone(j.Header.GetLabels())
	view.MaxFailures = j.Header.GetMaxFailures()
	view.TasksByState = make(map[string]uint32)
	for i, n := range j.Counts {
		state := fsm.TaskState(i) //nolint:gosec // a handful
		switch state {
		case fsm.Assigned:
			n -= min(v.running, n)
		case fsm.Completed:
			n -= min(aggregated, n)
		case fsm.Blocked, fsm.Scheduled, fsm.Pending, fsm.Failed, fsm.Cancelled, fsm.Dead, fsm.Lost:
		}
		if n > 0 {
			view.TasksByState[state.String()] = n
		}
	}
	if v.running > 0 {
		view.TasksByState[nameRunning] = v.running
	}
	if aggregated > 0 {
		view.TasksByState[nameAggregated] = aggregated
	}
	return view
}

// isAggregated reports whether a task in a state is part of its job's result:
// it has completed, nothing depends on it, and so has its job.
func isAggregated(st *fsm.State, job fsm.JobState, t fsm.TaskRef, state fsm.TaskState) bool {
	return job == fsm.JobCompleted && state == fsm.Completed && st.Dependents(t) == 0
}

// leafCounts remembers how many tasks of completed jobs are part of their
// results: it takes a walk over the job to find out, and changes only if the job
// is brought back and completes once more.
type leafCounts struct {
	mu sync.Mutex
	n  map[leafKey]uint32
}

type leafKey struct {
	id      fsm.JobID
	endedMS int64
}

// maxLeafCounts bounds the memory of leafCounts: 16 bytes or so each.
const maxLeafCounts = 1 << 16

func (c *leafCounts) get(job *fsm.Job) (uint32, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.n[leafKey{job.ID, job.EndedMS}]
	return n, ok
}

func (c *leafCounts) put(job *fsm.Job, n uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil || len(c.n) >= maxLeafCounts {
		c.n = make(map[leafKey]uint32)
	}
	c.n[leafKey{job.ID, job.EndedMS}] = n
}

// walkStride is how many tasks a walk does between two looks at its context.
const walkStride = 4096

// aggregated counts the tasks of a job that are part of its result. fork gives
// a state to walk over, if that is needed.
func (s *Server) aggregated(ctx context.Context, job *fsm.Job, fork func() (*fsm.State, error)) (uint32, error) {
	if job.State != fsm.JobCompleted {
		return 0, nil
	}
	if n, ok := s.leaves.get(job); ok {
		return n, nil
	}
	st, err := fork()
	if err != nil {
		return 0, err
	}
	n := uint32(0)
	for i := uint32(0); i < job.Total; i += walkStride {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		n += leaves(st, job, i, min(i+walkStride, job.Total))
	}
	s.leaves.put(job, n)
	return n, nil
}

// leaves counts the tasks from one index to below another that are part of the
// result of a completed job.
func leaves(st *fsm.State, job *fsm.Job, from, to uint32) (n uint32) {
	all := job.Counts[fsm.Completed] == job.Total
	for i := from; i < to; i++ {
		ref := fsm.TaskRef{Job: job.ID, Index: i}
		if st.Dependents(ref) > 0 {
			continue
		}
		t := fsm.Task{State: fsm.Completed}
		if !all {
			t, _ = st.Task(ref)
		}
		if t.State == fsm.Completed {
			n++
		}
	}
	return n
}

// jobView reads and shows a job as it is now.
func (s *Server) jobView(ctx context.Context, id fsm.JobID) (*dtaskv1.Job, error) {
	v, err := s.look(id)
	if err != nil {
		return nil, err
	}
	return s.viewOf(ctx, v)
}

// viewOf shows a job as it was read a moment ago, and how fresh that is.
func (s *Server) viewOf(ctx context.Context, v sight) (*dtaskv1.Job, error) {
	view, err := s.viewed(ctx, v)
	if err == nil {
		view.Freshness = s.freshness(v.index)
	}
	return view, err
}

// viewed shows a job as it was read a moment ago.
func (s *Server) viewed(ctx context.Context, v sight) (*dtaskv1.Job, error) {
	// A completed job changes only if it is brought back: a later fork mostly has
	// it alike.
	aggregated, err := v.aggregated, error(nil)
	if !v.counted {
		aggregated, err = s.aggregated(ctx, &v.job, func() (*fsm.State, error) {
			st, _, _, err := s.fork(v.job.ID)
			return st, err
		})
	}
	if err != nil {
		return nil, err
	}
	return show(v, aggregated), nil
}

// levels counts the tasks of a job by topological level: level 0 has those
// without dependencies, every other task is one above the highest that it
// depends on.
func levels(ctx context.Context, st *fsm.State, job fsm.Job) ([]uint32, error) {
	level := make([]uint32, job.Total)
	var counts []uint32
	for i := range job.Total {
		if i%walkStride == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		for _, dep := range st.Dependencies(fsm.TaskRef{Job: job.ID, Index: i}) {
			level[i] = max(level[i], level[dep]+1)
		}
		if int(level[i]) == len(counts) {
			counts = append(counts, 0)
		}
		counts[level[i]]++
	}
	return counts, nil
}
