package history

import (
	"bytes"
	"encoding/binary"
	"math"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/fsm"
)

// Jobs are looked for by when they were submitted. Their numbers ascend with that mostly,
// and not always: an upload takes its time, and leaders have clocks of their own. So the
// bucket of times has the first and the last time in each block of jobs, small and large
// ones, and a listing passes over the blocks that have nothing to show. They are
// never narrowed, and go with the last job of the block.

// blockBits are how many low bits of a job's number are within a block.
var blockBits = [...]uint8{16, 10}

// A span is from the first to the last of some times, in ms.
type span struct{ first, last int64 }

func (s span) with(t span) span { return span{min(s.first, t.first), max(s.last, t.last)} }

func timeKey(bits uint8, id fsm.JobID) []byte {
	return binary.BigEndian.AppendUint64([]byte{bits}, uint64(id)>>bits)
}

// timesFromKey has the first job of which times are noted, in a file that is older than the
// bucket of times.
var timesFromKey = []byte("from")

func readSpan(key, value []byte) (span, error) {
	b, err := opened(key, value)
	if err != nil {
		return span{}, err
	}
	if len(b) != 16 {
		return span{}, damaged("the times of a block have %d bytes", len(b))
	}
	return span{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))}, nil //nolint:gosec // bits only
}

func (s span) store(times *bbolt.Bucket, key []byte) error {
	b := binary.BigEndian.AppendUint64(nil, uint64(s.first)) //nolint:gosec // bits only
	b = binary.BigEndian.AppendUint64(b, uint64(s.last))     //nolint:gosec // bits only
	return times.Put(key, sealed(key, b))
}

// createTimes makes the bucket of times, in an older file for the jobs that come from now on:
// those of the blocks that are there are looked at one by one.
func createTimes(tx *bbolt.Tx) error {
	if tx.Bucket(bucketTimes) != nil {
		return nil
	}
	times, err := tx.CreateBucket(bucketTimes)
	if err != nil {
		return err
	}
	last, _ := tx.Bucket(bucketJobs).Cursor().Last()
	if len(last) != 8 {
		return nil
	}
	from := (binary.BigEndian.Uint64(last)>>blockBits[0] + 1) << blockBits[0]
	return times.Put(timesFromKey, sealed(timesFromKey, binary.BigEndian.AppendUint64(nil, from)))
}

// timesFrom is the first job of which times are noted.
func timesFrom(times *bbolt.Bucket) (fsm.JobID, error) {
	value := times.Get(timesFromKey)
	if value == nil {
		return 0, nil
	}
	b, err := opened(timesFromKey, value)
	if err != nil || len(b) != 8 {
		return 0, damaged("where its times begin cannot be read")
	}
	return fsm.JobID(binary.BigEndian.Uint64(b)), nil
}

// addTimes notes when jobs were submitted.
func addTimes(tx *bbolt.Tx, list []encoded) error {
	times := tx.Bucket(bucketTimes)
	from, err := timesFrom(times)
	if err != nil {
		return err
	}
	for _, bits := range blockBits {
		for i := 0; i < len(list); {
			id, s := list[i].Job, span{math.MaxInt64, math.MinInt64}
			for ; i < len(list) && list[i].Job>>bits == id>>bits; i++ {
				s = s.with(span{list[i].submitted, list[i].submitted})
			}
			if id < from {
				continue
			}
			key := timeKey(bits, id)
			if value := times.Get(key); value != nil {
				old, err := readSpan(key, value)
				if err != nil {
					return err
				}
				if s = s.with(old); s == old {
					continue
				}
			}
			if err := s.store(times, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropTimes drops the times of blocks that have no jobs any more. gone are jobs that went.
func dropTimes(tx *bbolt.Tx, gone []fsm.JobID) error {
	times, jobs := tx.Bucket(bucketTimes), tx.Bucket(bucketJobs).Cursor()
	for _, bits := range blockBits {
		for i := 0; i < len(gone); {
			id := gone[i]
			for i < len(gone) && gone[i]>>bits == id>>bits {
				i++
			}
			next, _ := jobs.Seek(jobKey(id >> bits << bits))
			if len(next) == 8 && fsm.JobID(binary.BigEndian.Uint64(next))>>bits == id>>bits {
				continue
			}
			if err := times.Delete(timeKey(bits, id)); err != nil {
				return err
			}
		}
	}
	return nil
}

// timed looks whether the times of its blocks have those of a job.
func timed(tx *bbolt.Tx, head *fsm.Head) error {
	times := tx.Bucket(bucketTimes)
	from, err := timesFrom(times)
	if err != nil || head.ID < from {
		return err
	}
	for _, bits := range blockBits {
		key := timeKey(bits, head.ID)
		s, err := readSpan(key, times.Get(key))
		if err != nil {
			return err
		}
		if head.SubmittedMS < s.first || head.SubmittedMS > s.last {
			return damaged("job %d is not within the times of its block", head.ID)
		}
	}
	return nil
}

// timeline passes over blocks in which no job was submitted when it is asked for.
type timeline struct {
	*lister

	times  *bbolt.Bucket
	jobs   *bbolt.Cursor
	from   fsm.JobID // there are no times of jobs below
	inside []byte    // key of the small block that is known to have some
}

func newTimeline(l *lister) (*timeline, error) {
	if l.q.Since == 0 && l.q.Before == 0 {
		return nil, nil //nolint:nilnil // nothing is passed over
	}
	t := &timeline{lister: l, times: l.tx.Bucket(bucketTimes), jobs: l.tx.Bucket(bucketJobs).Cursor()}
	var err error
	t.from, err = timesFrom(t.times)
	return t, err
}

// next is the highest job at or below one that is not passed over; ok is false if there is
// none. If it is enough for one call, it is as far as it came.
func (t *timeline) next(id fsm.JobID) (next fsm.JobID, ok bool, err error) {
	if t == nil {
		return id, true, nil
	}
	for t.left > 0 {
		bits, err := t.outside(id)
		if err != nil || bits == 0 {
			return id, err == nil, err
		}
		t.left -= stepSeek
		if id, ok = before(t.jobs, id>>bits<<bits); !ok {
			return 0, false, nil
		}
	}
	return id, true, nil
}

// outside gives the size of the largest block of a job that has nothing to show; 0 = all
// have.
func (t *timeline) outside(id fsm.JobID) (bits uint8, err error) {
	small := timeKey(blockBits[len(blockBits)-1], id)
	if id < t.from || bytes.Equal(small, t.inside) {
		return 0, nil
	}
	for _, bits := range blockBits {
		t.left -= stepSeek
		key := timeKey(bits, id)
		value := t.times.Get(key)
		if value == nil {
			return 0, damaged("the block of job %d has no times", id)
		}
		s, err := readSpan(key, value)
		if err != nil {
			return 0, err
		}
		if s.last < t.q.Since || t.q.Before != 0 && s.first >= t.q.Before {
			return bits, nil
		}
	}
	t.inside = small
	return 0, nil
}
