package history

import (
	"bytes"
	"context"
	"encoding/binary"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/fsm"
)

// What listing costs, in steps; one of some 20 ns is within a list that is at hand.
const (
	stepSeek = 50  // a key is looked up in the file
	stepHead = 150 // a job is read
	// maxSteps bounds how much one listing does.
	maxSteps = 2_000_000
)

// matcher finds the jobs of a segment that have a word of each set: it asks each for
// the next lower job, and begins again below whoever is lowest.
type matcher struct {
	*lister

	time *timeline
	sets [][]*finder
}

func newMatcher(l *lister, time *timeline, sets [][]word) *matcher {
	m, index := &matcher{lister: l, time: time}, l.tx.Bucket(bucketIndex)
	for _, set := range sets {
		var finders []*finder
		for _, w := range set {
			finders = append(finders, &finder{word: w, cursor: index.Cursor()})
		}
		m.sets = append(m.sets, finders)
	}
	return m
}

// segment goes over a segment from a job down.
func (m *matcher) segment(first, id fsm.JobID) (more bool, rest fsm.JobID, err error) {
	for _, set := range m.sets {
		for _, f := range set {
			f.begin(first)
		}
	}
	jobs := m.tx.Bucket(bucketJobs)
	for agreed := 0; ; {
		low, ok := m.lower(m.sets[agreed], uint16(id)) //nolint:gosec // the low 16 bits
		if !ok {
			return true, 0, nil
		}
		if m.left <= 0 || m.ctx.Err() != nil {
			return false, id + 1, context.Cause(m.ctx)
		}
		if at := first + fsm.JobID(low); at < id {
			id, agreed = at, 0 // begin again, this set included
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
		m.left -= stepHead
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
		id, agreed = id-1, 0
	}
}

// lower finds the highest job of a set in the segment, at or below a number.
func (m *matcher) lower(set []*finder, id uint16) (low uint16, ok bool) {
	for _, f := range set {
		at, found, steps := f.lower(id)
		m.left -= steps
		if found {
			low, ok = max(low, at), true
		}
	}
	return low, ok
}

// finder finds the jobs of a segment that have a word, from the highest down. It stays in
// a list as long as this has what is asked for, and looks at the one before it first then:
// most lists are read once, and in order.
type finder struct {
	word   word
	cursor *bbolt.Cursor

	want       post   // of the segment; its number is what is asked for
	key, value []byte // the list it is in; nil: it is in none
	left       int    // jobs of value that were not above what was asked for
	over       bool   // the segment has no more
}

// begin begins a segment.
func (f *finder) begin(first fsm.JobID) {
	*f = finder{word: f.word, cursor: f.cursor, want: makePost(f.word, first)}
}

// lower finds the highest job at or below a number, which must not be above the one that
// was asked for before in this segment.
func (f *finder) lower(id uint16) (low uint16, ok bool, steps int) {
	steps = 1
	if f.key != nil && f.first() > id {
		steps += stepSeek / 5
		f.enter(f.cursor.Prev())
	}
	if !f.over && (f.key == nil || f.first() > id) {
		steps += stepSeek
		binary.BigEndian.PutUint16(f.want[groupSize:], id)
		f.enter(seekBack(f.cursor, f.want[:]))
	}
	if f.over {
		return 0, false, steps
	}
	return f.within(id), true, steps
}

func (f *finder) first() uint16 { return binary.BigEndian.Uint16(f.key[groupSize:]) }

func (f *finder) at(i int) uint16 { return binary.BigEndian.Uint16(f.value[2*i:]) }

// enter goes into a list, unless it is none of the word in this segment.
func (f *finder) enter(key, value []byte) {
	if len(key) != postSize || !bytes.Equal(key[:groupSize], f.want.group()) {
		f.over = true
		return
	}
	f.key, f.value, f.left = key, value, len(value)/2
}

// within finds the highest job of the list at or below a number that is not below its
// first. What is asked for is mostly near what was asked for before.
func (f *finder) within(id uint16) uint16 {
	low, step := f.left-1, 1
	for low >= 0 && f.at(low) > id {
		f.left = low
		low, step = low-step, 2*step
	}
	low = max(low, -1) // it is not above id, nor is what is before it; what is at left is
	for low+1 < f.left {
		if mid := (low + 1 + f.left) / 2; f.at(mid) > id {
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
