package api

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxRunTimes is how many of the latest run times of a unit are used.
	maxRunTimes = 20
	// maxRunTimeUnits bounds a runTimeCache, which then takes less than 1 MB.
	maxRunTimeUnits = 1_024
	// runTimesLifetime is for how long the run times of a unit are not read again.
	runTimesLifetime = 10 * time.Second
	// maxUnitsRead bounds the units that are read for one answer.
	maxUnitsRead = 64
	// maxJobsRead is how many of the newest jobs of the state are searched for one answer.
	maxJobsRead = 2_000
	// maxTasksProbed is how many tasks of an array are looked at, spread evenly.
	maxTasksProbed = 200
	// maxJobSearched is how many tasks a job may have whose tasks are found by name, and
	// maxJobAdopted those of a job that is read from the history.
	maxJobSearched, maxJobAdopted = 1_000, 10_000
	// maxHistoryRead bounds the bytes of jobs that are read from the history for one answer,
	// which holds them in memory until its end.
	maxHistoryRead = 32 << 20
)

// A unitName names the tasks that are alike: a task, or the tasks of an array, of all jobs
// with one name and owner.
type unitName struct {
	job  jobName
	unit string
}

type jobName struct{ namespace, owner, name string }

func jobNameOf(h *dtaskv1.JobHeader) jobName {
	return jobName{namespaceOf(h), h.GetOwner(), h.GetName()}
}

// A runTimeCache has the latest run times of units. Nothing of it is in the replicated
// state: they are read from the tasks there, and from the history, when they are needed.
type runTimeCache struct {
	mu sync.Mutex
	m  map[unitName]runTimes
}

type runTimes struct {
	read time.Time
	list []time.Duration
}

func (c *runTimeCache) get(u unitName) ([]time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.m[u]
	return r.list, ok && time.Since(r.read) < runTimesLifetime
}

func (c *runTimeCache) put(u unitName, list []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || len(c.m) >= maxRunTimeUnits {
		c.m = make(map[unitName]runTimes)
	}
	c.m[u] = runTimes{time.Now(), list}
}

// A runTimeReader reads run times for one answer.
type runTimeReader struct {
	ctx    context.Context //nolint:containedctx // it lives as long as one call
	server *Server
	st     *fsm.State

	byTask map[fsm.TaskRef]unitName // by the first task of the unit
	known  map[unitName][]time.Duration
	jobs   map[jobName][]fsm.JobID // in the state, newest first; nil until jobsLike is called
	past   map[jobName]*pastJobs
	read   int // units

	historyRead int64 // bytes
	cut         bool  // the history has more that was not read
}

// pastJobs are jobs of the history, in a state of their own.
type pastJobs struct {
	st  *fsm.State
	ids []fsm.JobID
}

// of returns the latest run times of the tasks that are like one, the same list for all of
// them; nil if more than maxUnitsRead had to be read.
func (r *runTimeReader) of(ref fsm.TaskRef) []time.Duration {
	first := unitOf(r.st, ref)
	u, ok := r.byTask[first]
	if !ok {
		if u, ok = unitNameOf(r.st, first); !ok {
			return nil
		}
		if r.byTask == nil {
			r.byTask, r.known = make(map[fsm.TaskRef]unitName), make(map[unitName][]time.Duration)
		}
		r.byTask[first] = u
	}
	list, ok := r.known[u]
	if ok {
		return list
	}
	if list, ok = r.server.runTimes.get(u); !ok {
		if r.read++; r.read > maxUnitsRead {
			return nil
		}
		list = r.collect(first, u)
		if !r.cut {
			r.server.runTimes.put(u, list)
		}
	}
	r.known[u] = list
	return list
}

// unitNameOf returns the name of the unit that begins with a task.
func unitNameOf(st *fsm.State, first fsm.TaskRef) (unitName, bool) {
	job, ok := st.Job(first.Job)
	if !ok {
		return unitName{}, false
	}
	u := unitName{job: jobNameOf(job.Header), unit: st.Name(first)}
	if a, isArray := st.ArrayTask(first); isArray {
		u.unit = a.Name
	}
	return u, true
}

// A runTime is how long a task ran, and when it ended.
type runTime struct {
	ended int64 // Unix ms
	took  time.Duration
}

// collect returns the latest run times of a unit, of which one task is known.
func (r *runTimeReader) collect(first fsm.TaskRef, u unitName) []time.Duration {
	found := runTimesIn(r.st, first.Job, first.Index, u.unit)
	if u.job.name != "" {
		for _, id := range r.jobsLike(u.job) {
			if len(found) >= maxRunTimes {
				break
			}
			if id != first.Job {
				found = append(found, runTimesIn(r.st, id, first.Index, u.unit)...)
			}
		}
		if len(found) < maxRunTimes {
			past := r.pastJobs(u.job)
			for _, id := range past.ids {
				found = append(found, runTimesIn(past.st, id, first.Index, u.unit)...)
			}
		}
	}
	slices.SortFunc(found, func(a, b runTime) int { return cmp.Compare(b.ended, a.ended) })
	found = found[:min(len(found), maxRunTimes)]
	list := make([]time.Duration, len(found))
	for i := range found {
		list[i] = found[i].took
	}
	return list
}

// jobsLike returns jobs of the state with a name.
func (r *runTimeReader) jobsLike(n jobName) []fsm.JobID {
	if r.jobs == nil {
		r.jobs = make(map[jobName][]fsm.JobID)
		left := maxJobsRead
		for job := range r.st.Jobs(0) {
			if left--; left < 0 {
				break
			}
			if k := jobNameOf(job.Header); len(r.jobs[k]) < maxRunTimes && job.Counts[fsm.Completed] > 0 {
				r.jobs[k] = append(r.jobs[k], job.ID)
			}
		}
	}
	return r.jobs[n]
}

// pastJobs reads the newest jobs of the history with a name. What can't be read is left
// out: an estimate is not worth an error.
func (r *runTimeReader) pastJobs(n jobName) *pastJobs {
	if p := r.past[n]; p != nil {
		return p
	}
	p := &pastJobs{st: r.st.Fork()}
	if r.past == nil {
		r.past = make(map[jobName]*pastJobs)
	}
	r.past[n] = p
	h := r.server.cfg.History
	if h == nil {
		return p
	}
	var heads []fsm.Head
	q := history.Query{Name: n.name, Owner: n.owner, Namespaces: []string{n.namespace}}
	_, err := h.List(r.ctx, q, func(head fsm.Head) bool {
		if _, inState := p.st.Job(head.ID); !inState && head.Total <= maxJobAdopted && head.Counts[fsm.Completed] > 0 && head.Header.GetOwner() == n.owner {
			heads = append(heads, head)
		}
		return len(heads) < maxRunTimes
	})
	for i := range heads {
		var ok bool
		if err == nil {
			ok, err = r.adopt(p.st, &heads[i])
		}
		if ok {
			p.ids = append(p.ids, heads[i].ID)
		}
	}
	if err != nil {
		if r.cut = true; r.ctx.Err() == nil {
			r.server.cfg.Logger.Warn("reading run times from history failed", "err", err)
		}
		p.ids = nil // the state must not be used
	}
	return p
}

// adopt adds a job of the history to a state, unless too much was read for this answer.
func (r *runTimeReader) adopt(st *fsm.State, head *fsm.Head) (ok bool, err error) {
	if r.ctx.Err() != nil {
		return false, context.Cause(r.ctx)
	}
	n, err := r.server.cfg.History.Size(head.ID)
	if err != nil {
		return false, err
	}
	if n += taskBytes * int64(head.Total); r.historyRead+n > maxHistoryRead {
		r.cut = true
		return false, nil
	}
	r.historyRead += n
	return r.server.cfg.History.Adopt(st, head.ID)
}

// taskBytes is about what a task takes in memory beside what is in the file of it.
const taskBytes = 64

// runTimesIn returns run times of a unit in one job, where it mostly begins at index at, as
// in other jobs of the same name.
func runTimesIn(st *fsm.State, id fsm.JobID, at uint32, unit string) (found []runTime) {
	job, ok := st.Job(id)
	if !ok {
		return nil
	}
	first, isArray := st.FindArray(id, unit)
	n := uint32(1)
	if isArray {
		n = st.Span(first)
	} else {
		first = fsm.TaskRef{Job: id, Index: at}
		if at >= job.Total || st.Name(first) != unit {
			if job.Total > maxJobSearched {
				return nil
			}
			if first, ok = st.FindTask(id, unit); !ok {
				return nil
			}
		}
	}
	probes := min(n, maxTasksProbed)
	for k := range probes {
		ref := fsm.TaskRef{Job: id, Index: first.Index + uint32(uint64(k)*uint64(n)/uint64(probes))} //nolint:gosec // below n
		if t, ok := runTimeOf(st, ref); ok {
			found = append(found, t)
		}
	}
	return found
}

// runTimeOf returns how long a task ran, if it completed and has a run time of its own.
func runTimeOf(st *fsm.State, ref fsm.TaskRef) (runTime, bool) {
	t, ok := st.Task(ref)
	if !ok || t.State != fsm.Completed || t.Attempt == 0 || t.StartedMS == 0 || st.Result(ref).ReusedJob != 0 {
		return runTime{}, false
	}
	return runTime{t.EndedMS, time.Duration(t.EndedMS-t.StartedMS) * time.Millisecond}, true
}
