package index

import (
	"bytes"
	"encoding/binary"
	"math"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
)

// Job IDs mostly ascend with the time of submission, but not always: an upload takes
// time, and leaders have clocks of their own. Therefore the bucket of times has the
// first and the last time of each block of jobs. A span is never narrowed, and is
// dropped with the last job of its block.

// blockBits is how many low bits of a job ID are within a block, for large and small
// blocks.
var blockBits = [...]uint8{16, 10}

// A span is a range of times of submission, in ms.
type span struct{ first, last int64 }

func (s span) union(t span) span { return span{min(s.first, t.first), max(s.last, t.last)} }

func blockKey(bits uint8, id fsm.JobID) []byte {
	return binary.BigEndian.AppendUint64([]byte{bits}, uint64(id)>>bits)
}

func readSpan(key, value []byte) (span, error) {
	b, err := format.Open(key, value)
	if err != nil {
		return span{}, err
	}
	if len(b) != 16 {
		return span{}, format.Damaged("the times of a block have %d bytes", len(b))
	}
	return span{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))}, nil //nolint:gosec // bits only
}

func (s span) store(times *bbolt.Bucket, key []byte) error {
	b := binary.BigEndian.AppendUint64(nil, uint64(s.first)) //nolint:gosec // bits only
	b = binary.BigEndian.AppendUint64(b, uint64(s.last))     //nolint:gosec // bits only
	return times.Put(key, format.Seal(key, b))
}

// eachBlock calls do with each run of entries that share a block.
func eachBlock(entries []Entry, do func(bits uint8, run []Entry) error) error {
	for _, bits := range blockBits {
		for rest := entries; len(rest) > 0; {
			n := 1
			for n < len(rest) && rest[n].Job>>bits == rest[0].Job>>bits {
				n++
			}
			if err := do(bits, rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
	}
	return nil
}

// widen makes the spans of blocks include the times of new jobs.
func (x Index) widen(entries []Entry) error {
	return eachBlock(entries, func(bits uint8, run []Entry) error {
		s := span{math.MaxInt64, math.MinInt64}
		for _, e := range run {
			s = s.union(span{e.SubmittedMS, e.SubmittedMS})
		}
		key := blockKey(bits, run[0].Job)
		if value := x.times.Get(key); value != nil {
			old, err := readSpan(key, value)
			if err != nil {
				return err
			}
			if s = s.union(old); s == old {
				return nil
			}
		}
		return s.store(x.times, key)
	})
}

// dropBlocks drops the spans of blocks that lost their last job.
func (x Index) dropBlocks(removed []Entry) error {
	jobs := x.jobs.Cursor()
	return eachBlock(removed, func(bits uint8, run []Entry) error {
		id := run[0].Job
		k, _ := jobs.Seek(format.JobKey(id >> bits << bits))
		if next, ok := format.ParseJobKey(k); ok && next>>bits == id>>bits {
			return nil
		}
		return x.times.Delete(blockKey(bits, id))
	})
}

// verifyTimes checks that the spans of its blocks include the time of a job.
func (x Index) verifyTimes(e Entry) error {
	for _, bits := range blockBits {
		key := blockKey(bits, e.Job)
		s, err := readSpan(key, x.times.Get(key))
		if err != nil {
			return err
		}
		if e.SubmittedMS < s.first || e.SubmittedMS > s.last {
			return format.Damaged("job %d is not within the times of its block", e.Job)
		}
	}
	return nil
}

// timeFilter skips blocks in which no job was submitted at the requested time. A nil
// one skips nothing.
type timeFilter struct {
	*search

	jobs    *bbolt.Cursor
	matches []byte // key of a small block that may have jobs of the requested time
}

func newTimeFilter(s *search) *timeFilter {
	if s.query.Since == 0 && s.query.Before == 0 {
		return nil
	}
	return &timeFilter{search: s, jobs: s.jobs.Cursor()}
}

// next returns the highest job at or below id that is not skipped; ok is false if no
// job is left. If the search runs out of steps, it returns how far it got.
func (f *timeFilter) next(id fsm.JobID) (next fsm.JobID, ok bool, err error) {
	if f == nil {
		return id, true, nil
	}
	for f.steps > 0 {
		bits, err := f.skippable(id)
		if err != nil || bits == 0 {
			return id, err == nil, err
		}
		f.steps -= stepSeek
		if id, ok = lastBelow(f.jobs, id>>bits<<bits); !ok {
			return 0, false, nil
		}
	}
	return id, true, nil
}

// skippable returns the size, in bits, of the largest block of a job that can be
// skipped; 0 = none.
func (f *timeFilter) skippable(id fsm.JobID) (bits uint8, err error) {
	small := blockKey(blockBits[len(blockBits)-1], id)
	if bytes.Equal(small, f.matches) {
		return 0, nil
	}
	for _, bits := range blockBits {
		f.steps -= stepSeek
		key := blockKey(bits, id)
		value := f.times.Get(key)
		if value == nil {
			return 0, format.Damaged("the block of job %d has no times", id)
		}
		s, err := readSpan(key, value)
		if err != nil {
			return 0, err
		}
		if s.last < f.query.Since || f.query.Before != 0 && s.first >= f.query.Before {
			return bits, nil
		}
	}
	f.matches = small
	return 0, nil
}
