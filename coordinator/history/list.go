package history

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/fsm"
)

// Query is what a listing looks for; what is not set matches all.
type Query struct {
	Name, Owner string
	Labels      map[string]string // all must match
	States      []fsm.JobState    // one must match
	Since       int64             // ms; only jobs submitted then or later
	Before      int64             // ms; only jobs submitted earlier; 0 = all
	Below       fsm.JobID         // only jobs with lower numbers; 0 = all
}

// Match reports whether a job is looked for.
func (q *Query) Match(j *fsm.Job) bool {
	switch {
	case q.Below != 0 && j.ID >= q.Below,
		q.Name != "" && q.Name != j.Header.GetName(),
		q.Owner != "" && q.Owner != j.Header.GetOwner(),
		j.SubmittedMS < q.Since, q.Before != 0 && j.SubmittedMS >= q.Before,
		len(q.States) > 0 && !slices.Contains(q.States, j.State):
		return false
	}
	for key, want := range q.Labels {
		if got, ok := j.Header.GetLabels()[key]; !ok || got != want {
			return false
		}
	}
	return true
}

// List goes over the jobs that are looked for, newest first, until yield wants no
// more. After so much looking that others should have a turn it ends early: rest is
// above 0 then, and what is below it was not looked at.
func (h *History) List(ctx context.Context, q Query, yield func(fsm.Head) bool) (rest fsm.JobID, err error) {
	if q.Below == 0 {
		q.Below = math.MaxUint64
	}
	pending := h.listPending(&q) // before the file is looked at: a job may go from here to there
	done := false
	give := func(head fsm.Head) bool {
		for !done && len(pending) > 0 && pending[0].ID() >= head.ID {
			a := pending[0]
			pending = pending[1:]
			if a.ID() == head.ID {
				break // it is in the file by now
			}
			done = !yield(a.Head())
		}
		done = done || !yield(head)
		return !done
	}
	err = h.view(func(tx *bbolt.Tx) error {
		l := lister{ctx: ctx, tx: tx, q: &q, yield: give, left: maxSteps}
		rest, err = l.run()
		return err
	})
	for ; err == nil && !done && len(pending) > 0 && pending[0].ID() >= rest; pending = pending[1:] {
		done = !yield(pending[0].Head())
	}
	return rest, err
}

// listPending gives the jobs that are looked for and not in the file yet, newest
// first.
func (h *History) listPending(q *Query) []*fsm.ArchivedJob {
	h.mu.Lock()
	all := make([]*fsm.ArchivedJob, 0, len(h.pending))
	for id, a := range h.pending {
		if id < q.Below {
			all = append(all, a)
		}
	}
	h.mu.Unlock()
	all = slices.DeleteFunc(all, func(a *fsm.ArchivedJob) bool {
		job := a.Job()
		return !q.Match(&job)
	})
	slices.SortFunc(all, func(a, b *fsm.ArchivedJob) int { return cmp.Compare(b.ID(), a.ID()) })
	return all
}

// lister is one look through the file.
type lister struct {
	ctx   context.Context //nolint:containedctx // it lives within one call
	tx    *bbolt.Tx
	q     *Query
	yield func(fsm.Head) bool
	left  int // steps
}

// sets are the words that are looked for: a job must have one of each set.
func (l *lister) sets() [][]word {
	var sets [][]word
	if l.q.Name != "" {
		sets = append(sets, []word{makeWord(wordName, l.q.Name)})
	}
	if l.q.Owner != "" {
		sets = append(sets, []word{makeWord(wordOwner, l.q.Owner)})
	}
	for key, value := range l.q.Labels {
		sets = append(sets, []word{makeWord(wordLabel, key, value)})
	}
	if len(l.q.States) > 0 {
		var states []word
		for _, s := range l.q.States {
			if s.Terminal() {
				states = append(states, stateWord(s))
			}
		}
		sets = append(sets, states)
	}
	return sets
}

func (l *lister) run() (rest fsm.JobID, err error) {
	sets := l.sets()
	if slices.ContainsFunc(sets, func(set []word) bool { return len(set) == 0 }) {
		return 0, nil // only jobs that have not ended are looked for
	}
	time, err := newTimeline(l)
	if err != nil {
		return 0, err
	}
	jobs := l.tx.Bucket(bucketJobs).Cursor()
	id, more := before(jobs, l.q.Below)
	if len(sets) == 0 {
		return l.all(jobs, time, id, more)
	}
	m := newMatcher(l, time, sets)
	for more {
		if id, more, err = time.next(id); err != nil || !more {
			return 0, err
		}
		if l.left <= 0 || l.ctx.Err() != nil {
			return id + 1, context.Cause(l.ctx)
		}
		segment := id >> segmentBits << segmentBits
		if more, rest, err = m.segment(segment, id); err != nil || rest > 0 || !more {
			return rest, err
		}
		id, more = before(jobs, segment)
		l.left -= stepSeek
	}
	return 0, nil
}

// all goes over all jobs from one down.
func (l *lister) all(jobs *bbolt.Cursor, time *timeline, id fsm.JobID, more bool) (rest fsm.JobID, err error) {
	for k, v := jobs.Seek(jobKey(id)); more && k != nil; k, v = jobs.Prev() {
		at := fsm.JobID(binary.BigEndian.Uint64(k))
		if id, more, err = time.next(at); err != nil || !more {
			return 0, err
		}
		if id < at {
			k, v = jobs.Seek(jobKey(id))
		}
		if rest = l.stop(k); rest > 0 {
			return rest, nil
		}
		if more, err = l.give(k, v); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// stop says where to go on if it is enough for one call.
func (l *lister) stop(k []byte) fsm.JobID {
	if l.left -= stepHead; l.left > 0 && l.ctx.Err() == nil {
		return 0
	}
	return fsm.JobID(binary.BigEndian.Uint64(k)) + 1
}

// before finds the newest job below a number.
func before(c *bbolt.Cursor, below fsm.JobID) (id fsm.JobID, ok bool) {
	k, _ := c.Seek(jobKey(below))
	if k == nil {
		k, _ = c.Last()
	} else {
		k, _ = c.Prev()
	}
	if len(k) != 8 {
		return 0, false
	}
	return fsm.JobID(binary.BigEndian.Uint64(k)), true
}

// give hands over a job if it is looked for.
func (l *lister) give(k, v []byte) (more bool, err error) {
	s, err := readValue(k, v)
	if err != nil {
		return false, err
	}
	head, err := headOf(k, s)
	if err != nil || !l.q.Match(&head.Job) {
		return err == nil, err
	}
	return l.yield(head), nil
}
