package api

import (
	"context"
	"errors"
	"slices"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxPastRuns is how many earlier jobs run times are read from.
	maxPastRuns = 20
	// maxPastTasks ends the reading of earlier jobs: 20 jobs of 30,000 tasks, or 5 of
	// 120,000. It takes less than a second.
	maxPastTasks = 600_000
	// maxArraySamples is how many tasks of one array of one job are read.
	maxArraySamples = 1000
	// minPastSamples is how many run times an estimate needs. With fewer, nothing is known.
	minPastSamples = 5
)

// pastRuns are how long the tasks of earlier jobs of one name, owner and namespace ran.
type pastRuns struct {
	samples map[string][]int64 // ms, by task or array; not sorted
	runs    int                // jobs that were read
	last    fsm.JobID          // newest job; 0 = none
}

// readPastRuns reads the run times of the tasks and arrays that names has, from the newest
// jobs of the header's name, owner and namespace. The order of their states does not matter:
// a task that has completed counts, also in a job that still runs.
func (s *Server) readPastRuns(ctx context.Context, h *dtaskv1.JobHeader, names map[string]bool) (*pastRuns, error) {
	st, _ := s.cfg.Machine.Fork()
	resp := new(dtaskv1.ListJobsResponse)
	page := &jobPage{ctx: ctx, server: s, st: st, limit: maxPastRuns, resp: resp, filter: &jobFilter{
		Query: history.Query{Name: h.GetName(), Owner: h.GetOwner(), Namespaces: []string{namespaceOf(h)}}, archived: true,
	}}
	if _, err := page.fill(); err != nil {
		return nil, err
	}
	r, left := &pastRuns{samples: make(map[string][]int64)}, maxPastTasks
	for _, job := range resp.GetJobs() {
		if job.GetOwner() != h.GetOwner() {
			continue // a query without an owner finds the jobs of all
		}
		id, err := parseJobID(job.GetId())
		if err != nil {
			return nil, err
		}
		if r.last == 0 {
			r.last = id
		}
		if left -= int(job.GetTasksTotal()); left < 0 && r.runs > 0 {
			break
		}
		if err := s.readRun(ctx, id, names, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// readRun adds the run times of one job. One that has left the history meanwhile has none.
func (s *Server) readRun(ctx context.Context, id fsm.JobID, names map[string]bool, r *pastRuns) error {
	st, job, _, err := s.forkJob(id)
	if isMissing(err) {
		return nil
	} else if err != nil {
		return err
	}
	r.runs++
	next := uint32(0)
	for _, a := range st.Arrays(id) {
		if err := r.addTasks(ctx, st, id, next, a.First, names); err != nil {
			return err
		}
		if next = a.First + a.Count; !names[a.Name] {
			continue
		}
		step := max(1, (a.Count+maxArraySamples-1)/maxArraySamples)
		for k := uint32(0); k < a.Count; k += step {
			r.add(a.Name, st, fsm.TaskRef{Job: id, Index: a.First + k})
		}
	}
	return r.addTasks(ctx, st, id, next, job.Total, names)
}

// addTasks adds the run times of tasks, from first up to but not including end, that are in
// no array.
func (r *pastRuns) addTasks(ctx context.Context, st *fsm.State, id fsm.JobID, first, end uint32, names map[string]bool) error {
	for i := first; i < end; i++ {
		if err := ended(ctx, i); err != nil {
			return err
		}
		ref := fsm.TaskRef{Job: id, Index: i}
		if name := st.Name(ref); names[name] {
			r.add(name, st, ref)
		}
	}
	return nil
}

func (r *pastRuns) add(name string, st *fsm.State, ref fsm.TaskRef) {
	if t, ok := runTimeOf(st, ref); ok {
		r.samples[name] = append(r.samples[name], max(1, t.took.Milliseconds()))
	}
}

// of returns the quantiles 0.5 and 0.9 of the run times of a task or array, and from how
// many they are; 0 = too few.
func (r *pastRuns) of(name string) (low, high int64, samples int) {
	list := r.samples[name]
	if len(list) < minPastSamples {
		return 0, 0, 0
	}
	slices.Sort(list)
	return percentile(list, 50), percentile(list, 90), len(list)
}

// percentile returns the least of the sorted values that is not below p percent of them.
func percentile(sorted []int64, p int) int64 { return sorted[(len(sorted)*p+99)/100-1] }

// isMissing reports whether an error is that of an unknown or expired job.
func isMissing(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == KindNotFound
}
