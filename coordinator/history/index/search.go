package index

import (
	"cmp"
	"context"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Costs of a search in steps. A step is about 20 ns, spent within a list in memory.
const (
	stepSeek = 50  // a key lookup in the file
	stepHead = 150 // reading a job
	// maxSteps bounds one search, so that others get their turn.
	maxSteps = 2_000_000
)

// Query is what a search asks for; an unset field matches all jobs.
type Query struct {
	Name, Owner string
	Labels      map[string]string // all must match
	States      []fsm.JobState    // one must match
	Since       int64             // ms; only jobs submitted then or later
	Before      int64             // ms; only jobs submitted earlier; 0 = all
	Below       fsm.JobID         // only jobs with lower IDs; 0 = all
	Namespaces  []string          // the job must be in one; nil = all, and an empty list matches no job
}

// InNamespaces reports whether the query asks for jobs in the namespace of a job.
func (q *Query) InNamespaces(h *dtaskv1.JobHeader) bool {
	return q.Namespaces == nil || slices.Contains(q.Namespaces, cmp.Or(h.GetNamespace(), fsm.DefaultNamespace))
}

// Match reports whether a job matches.
func (q *Query) Match(j *fsm.Job) bool {
	switch {
	case q.Below != 0 && j.ID >= q.Below,
		q.Name != "" && q.Name != j.Header.GetName(),
		q.Owner != "" && q.Owner != j.Header.GetOwner(),
		j.SubmittedMS < q.Since, q.Before != 0 && j.SubmittedMS >= q.Before,
		len(q.States) > 0 && !slices.Contains(q.States, j.State),
		!q.InNamespaces(j.Header):
		return false
	}
	for key, want := range q.Labels {
		if got, ok := j.Header.GetLabels()[key]; !ok || got != want {
			return false
		}
	}
	return true
}

// MayMatchEnded reports whether a job that has ended may match: not if only other states, or
// no namespace, are asked for.
func (q *Query) MayMatchEnded() bool {
	states := len(q.States) == 0 || slices.ContainsFunc(q.States, fsm.JobState.Terminal)
	return states && (q.Namespaces == nil || len(q.Namespaces) > 0)
}

// termSets returns the terms that the query asks for: a job must have one of each set.
func (q *Query) termSets() [][]Term {
	var sets [][]Term
	if q.Name != "" {
		sets = append(sets, []Term{newTerm(termName, q.Name)})
	}
	if q.Owner != "" {
		sets = append(sets, []Term{newTerm(termOwner, q.Owner)})
	}
	// Jobs of the default namespace have no term, as those before there were namespaces.
	if q.Namespaces != nil && !slices.Contains(q.Namespaces, fsm.DefaultNamespace) {
		namespaces := make([]Term, len(q.Namespaces))
		for i, name := range q.Namespaces {
			namespaces[i] = newTerm(termNamespace, name)
		}
		sets = append(sets, namespaces)
	}
	for key, value := range q.Labels {
		sets = append(sets, []Term{newTerm(termLabel, key, value)})
	}
	if len(q.States) > 0 {
		var states []Term
		for _, s := range q.States {
			if s.Terminal() {
				states = append(states, stateTerm(s))
			}
		}
		sets = append(sets, states)
	}
	return sets
}

// Search calls yield with the key and value of jobs that may match, newest first,
// until yield returns false or an error; Below must be set. It may pass jobs that
// don't match, and no job that matches is left out. A search that takes long stops
// early: then rest is above 0, and jobs below it were not searched.
func (x Index) Search(ctx context.Context, q *Query, yield func(key, value []byte) (more bool, err error)) (rest fsm.JobID, err error) {
	s := search{Index: x, ctx: ctx, query: q, yield: yield, steps: maxSteps}
	return s.run()
}

// search is one call of Search.
type search struct {
	Index

	ctx   context.Context //nolint:containedctx // it lives within one call
	query *Query
	yield func(key, value []byte) (more bool, err error)
	steps int // left
}

func (s *search) run() (rest fsm.JobID, err error) {
	sets := s.query.termSets()
	if slices.ContainsFunc(sets, func(set []Term) bool { return len(set) == 0 }) {
		return 0, nil // the query asks only for unfinished jobs, or for those of no namespace
	}
	time := newTimeFilter(s)
	jobs := s.jobs.Cursor()
	id, more := lastBelow(jobs, s.query.Below)
	if len(sets) == 0 {
		return s.all(jobs, time, id, more)
	}
	m := newMatcher(s, time, sets)
	for more {
		if id, more, err = time.next(id); err != nil || !more {
			return 0, err
		}
		if s.exhausted() {
			return id + 1, context.Cause(s.ctx)
		}
		segment := id >> segmentBits << segmentBits
		if more, rest, err = m.segment(segment, id); err != nil || rest > 0 || !more {
			return rest, err
		}
		id, more = lastBelow(jobs, segment)
		s.steps -= stepSeek
	}
	return 0, nil
}

func (s *search) exhausted() bool { return s.steps <= 0 || s.ctx.Err() != nil }

// all passes all jobs from id down.
func (s *search) all(jobs *bbolt.Cursor, time *timeFilter, id fsm.JobID, more bool) (rest fsm.JobID, err error) {
	for k, v := jobs.Seek(format.JobKey(id)); more && k != nil; k, v = jobs.Prev() {
		at, _ := format.ParseJobKey(k)
		if id, more, err = time.next(at); err != nil || !more {
			return 0, err
		}
		if id < at {
			k, v = jobs.Seek(format.JobKey(id))
		}
		if s.steps -= stepHead; s.exhausted() {
			return id + 1, nil
		}
		if more, err = s.yield(k, v); err != nil {
			return 0, err
		}
	}
	return 0, nil
}
