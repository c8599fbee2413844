package history

import (
	"bytes"
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
	Below       fsm.JobID         // only jobs with lower numbers; 0 = all
}

// maxSteps bounds how often one listing looks into the file.
const maxSteps = 100_000

// Match reports whether a job is looked for.
func (q *Query) Match(j *fsm.Job) bool {
	switch {
	case q.Below != 0 && j.ID >= q.Below,
		q.Name != "" && q.Name != j.Header.GetName(),
		q.Owner != "" && q.Owner != j.Header.GetOwner(),
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
func (h *History) listPending(q *Query) []*fsm.Archived {
	h.mu.Lock()
	all := make([]*fsm.Archived, 0, len(h.pending))
	for id, a := range h.pending {
		if id < q.Below {
			all = append(all, a)
		}
	}
	h.mu.Unlock()
	all = slices.DeleteFunc(all, func(a *fsm.Archived) bool {
		job := a.Job()
		return !q.Match(&job)
	})
	slices.SortFunc(all, func(a, b *fsm.Archived) int { return cmp.Compare(b.ID(), a.ID()) })
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
	jobs := l.tx.Bucket(bucketJobs).Cursor()
	id, more := before(jobs, l.q.Below)
	if len(sets) == 0 {
		for k, v := jobs.Seek(jobKey(id)); more && k != nil; k, v = jobs.Prev() {
			if rest = l.stop(k); rest > 0 {
				return rest, nil
			}
			if more, err = l.give(k, v); err != nil {
				return 0, err
			}
		}
		return 0, nil
	}
	m := matcher{lister: l, cursor: l.tx.Bucket(bucketIndex).Cursor(), sets: sets}
	for more {
		if l.left <= 0 || l.ctx.Err() != nil {
			return id + 1, context.Cause(l.ctx)
		}
		segment := id >> segmentBits << segmentBits
		if more, rest, err = m.segment(segment, id); err != nil || rest > 0 || !more {
			return rest, err
		}
		id, more = before(jobs, segment)
		l.left--
	}
	return 0, nil
}

// stop says where to go on if it is enough for one call.
func (l *lister) stop(k []byte) fsm.JobID {
	if l.left--; l.left > 0 && l.ctx.Err() == nil {
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

// matcher finds the jobs of a segment that have a word of each set: it asks each for
// the next lower job, and begins again below whoever is lowest.
type matcher struct {
	*lister

	cursor *bbolt.Cursor
	sets   [][]word
}

// segment goes over a segment from a job down.
func (m *matcher) segment(first, id fsm.JobID) (more bool, rest fsm.JobID, err error) {
	jobs := m.tx.Bucket(bucketJobs)
	for agreed := 0; ; {
		set := m.sets[agreed]
		at, ok := m.lower(set, first, id)
		if !ok {
			return true, 0, nil
		}
		if at < id {
			id, agreed = at, 0 // begin again, this set included
			if len(m.sets) > 1 {
				continue
			}
		}
		if agreed++; agreed < len(m.sets) {
			continue
		}
		key := jobKey(id)
		value := jobs.Get(key)
		if value == nil {
			return false, 0, damaged("job %d is in the index and not there", id)
		}
		if more, err = m.give(key, value); err != nil || !more {
			return false, 0, err
		}
		if id == first {
			return true, 0, nil
		}
		if m.left <= 0 || m.ctx.Err() != nil {
			return false, id, context.Cause(m.ctx)
		}
		id, agreed = id-1, 0
	}
}

// lower finds the highest job of a segment, at or below a number, with one of some
// words.
func (m *matcher) lower(words []word, first, id fsm.JobID) (at fsm.JobID, ok bool) {
	for _, w := range words {
		m.left--
		key := makePost(w, id)
		k, v := seekBack(m.cursor, key[:])
		if len(k) != postSize || !bytes.Equal(k[:groupSize], key.group()) {
			continue
		}
		if low, found := lastPost(k, v, key.low()); found {
			at, ok = max(at, first+fsm.JobID(low)), true
		}
	}
	return at, ok
}
