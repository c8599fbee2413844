package index

import (
	"bytes"
	"context"
	"encoding/binary"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
)

// matcher finds the jobs of a segment that have a term of each set: it asks each set
// for its next lower job, and starts again below the lowest answer.
type matcher struct {
	*search

	time *timeFilter
	sets [][]*finder
}

func newMatcher(s *search, time *timeFilter, sets [][]Term) *matcher {
	m := &matcher{search: s, time: time}
	for _, set := range sets {
		var finders []*finder
		for _, t := range set {
			finders = append(finders, &finder{term: t, cursor: s.postings.Cursor()})
		}
		m.sets = append(m.sets, finders)
	}
	return m
}

// segment searches the segment that starts at first, from id down.
func (m *matcher) segment(first, id fsm.JobID) (more bool, rest fsm.JobID, err error) {
	for _, set := range m.sets {
		for _, f := range set {
			f.begin(first)
		}
	}
	for agreed := 0; ; {
		number, ok := m.lower(m.sets[agreed], uint16(id)) //nolint:gosec // the low 16 bits
		if !ok {
			return true, 0, nil
		}
		if m.exhausted() {
			return false, id + 1, context.Cause(m.ctx)
		}
		if at := first + fsm.JobID(number); at < id {
			id, agreed = at, 0 // all sets must agree on the lower job, this one included
			if len(m.sets) > 1 {
				continue
			}
		}
		if agreed++; agreed < len(m.sets) {
			continue
		}
		at, ok, err := m.time.next(id)
		switch {
		case err != nil || !ok:
			return false, 0, err
		case at < first:
			return true, 0, nil
		case at < id:
			id, agreed = at, 0
			continue
		}
		m.steps -= stepHead
		key := format.JobKey(id)
		value := m.jobs.Get(key)
		if value == nil {
			return false, 0, format.Damaged("job %d is in the index but not in the file", id)
		}
		if more, err = m.yield(key, value); err != nil || !more {
			return false, 0, err
		}
		if id == first {
			return true, 0, nil
		}
		id, agreed = id-1, 0
	}
}

// lower finds the highest job of a set in the segment at or below a number.
func (m *matcher) lower(set []*finder, number uint16) (highest uint16, ok bool) {
	for _, f := range set {
		at, found, steps := f.lower(number)
		m.steps -= steps
		if found {
			highest, ok = max(highest, at), true
		}
	}
	return highest, ok
}

// finder finds the jobs of a segment that have a term, from the highest down. It
// stays in a list while the list has what is asked for, and tries the list before it
// next: most lists are read once, and in order.
type finder struct {
	term   Term
	cursor *bbolt.Cursor

	want       posting // of the segment, with the number that is asked for
	key, value []byte  // the current list; nil = none yet
	left       int     // jobs of value that were not above the last number asked for
	done       bool    // the segment has no more
}

// begin starts a segment.
func (f *finder) begin(first fsm.JobID) {
	*f = finder{term: f.term, cursor: f.cursor, want: newPosting(f.term, first)}
}

// lower finds the highest job at or below a number, which must not be above the one
// of the call before in this segment.
func (f *finder) lower(number uint16) (highest uint16, ok bool, steps int) {
	steps = 1
	if f.key != nil && f.first() > number {
		steps += stepSeek / 5
		f.enter(f.cursor.Prev())
	}
	if !f.done && (f.key == nil || f.first() > number) {
		steps += stepSeek
		binary.BigEndian.PutUint16(f.want[groupSize:], number)
		f.enter(seekLast(f.cursor, f.want[:]))
	}
	if f.done {
		return 0, false, steps
	}
	return f.within(number), true, steps
}

func (f *finder) first() uint16 { return binary.BigEndian.Uint16(f.key[groupSize:]) }

func (f *finder) at(i int) uint16 { return binary.BigEndian.Uint16(f.value[2*i:]) }

// enter makes a list the current one, unless it belongs to another group.
func (f *finder) enter(key, value []byte) {
	if len(key) != postingSize || !bytes.Equal(key[:groupSize], f.want.group()) {
		f.done = true
		return
	}
	f.key, f.value, f.left = key, value, len(value)/2
}

// within finds the highest job of the current list at or below a number that is not
// below its first. The search gallops down from the last answer, which is mostly
// near, and then bisects.
func (f *finder) within(number uint16) uint16 {
	low, step := f.left-1, 1
	for low >= 0 && f.at(low) > number {
		f.left = low
		low, step = low-step, 2*step
	}
	// Invariant: jobs up to low are not above number, the job at left is.
	low = max(low, -1)
	for low+1 < f.left {
		if mid := (low + 1 + f.left) / 2; f.at(mid) > number {
			f.left = mid
		} else {
			low = mid
		}
	}
	if f.left == 0 {
		return f.first()
	}
	return f.at(f.left - 1)
}
