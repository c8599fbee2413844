package history

import (
	"bytes"
	"context"
	"os"
	"time"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
)

// quarantinedFile is the damaged file as a source: what can be read of it is used if
// no replica has it.
type quarantinedFile struct {
	path string
	db   *bbolt.DB // nil: it is opened when needed

	unreadable int // damaged jobs that were seen
}

// Fetch implements Source. The file is never complete.
func (q *quarantinedFile) Fetch(ctx context.Context, after Position, to uint64, take func(c Chunk, complete bool) error) (bool, error) {
	db := q.db
	if db == nil {
		if _, err := os.Stat(q.path); err != nil {
			return false, nil // no file was quarantined
		}
		err := guard(func() (err error) {
			db, err = bbolt.Open(q.path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
			return err
		})
		if err != nil {
			return false, nil // it can't be read at all
		}
		defer func() { _ = guard(db.Close) }()
	}
	// Walk from both ends: a page that can't be read ends a walk.
	last, err := q.walk(ctx, db, 0, true, after, to, take)
	if isDamaged(err) {
		_, err = q.walk(ctx, db, last, false, after, to, take)
	}
	if isDamaged(err) {
		err = nil
	}
	return false, err
}

// walk passes the jobs on, ascending from the first, or descending from the last down
// to, not including, end. It returns the last job that it reached.
func (q *quarantinedFile) walk(
	ctx context.Context, db *bbolt.DB, end fsm.JobID, ascending bool, after Position, to uint64, take func(c Chunk, complete bool) error,
) (last fsm.JobID, err error) {
	var stop error
	err = guard(func() error {
		return db.View(func(tx *bbolt.Tx) error {
			jobs := tx.Bucket(bucketJobs)
			if jobs == nil {
				return format.Damaged("it has no jobs")
			}
			c := jobs.Cursor()
			first, next := c.First, c.Next
			if !ascending {
				first, next = c.Last, c.Prev
			}
			for k, v := first(); stop == nil; k, v = next() {
				id, ok := format.ParseJobKey(k)
				if !ok || !ascending && id <= end {
					break
				}
				if stop = ctx.Err(); stop != nil {
					break
				}
				last = id
				chunks, err := readChunks(tx, k, v)
				if err != nil {
					q.unreadable++
					continue
				}
				if p := chunks[0].Position; p.Index > to || !after.before(p) {
					continue
				}
				for _, c := range chunks {
					if stop = take(c, false); stop != nil {
						break
					}
				}
			}
			return nil //nolint:nilerr // unreadable jobs were counted
		})
	})
	if stop != nil {
		return last, stop
	}
	return last, err
}

// readChunks reads a job with all its parts, and fails if one is damaged.
func readChunks(tx *bbolt.Tx, k, v []byte) (list []Chunk, err error) {
	err = guard(func() error {
		s, head, err := readHead(k, v)
		if err != nil {
			return err
		}
		p := Position{Index: s.index, Job: head.ID}
		for part := uint32(1); part <= s.allParts(); part++ {
			b, err := readAnyPart(tx, p.Job, &s, part)
			if err != nil {
				return err
			}
			list = append(list, Chunk{Position: p, Number: part, Data: bytes.Clone(b)})
		}
		list = append(list, Chunk{Position: p, Total: s.allParts(), Data: bytes.Clone(s.data)})
		return nil
	})
	return list, err
}
