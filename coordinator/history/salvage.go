package history

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"time"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/fsm"
)

// aside is the file that was set aside because it is damaged, as a source: what can be
// read of it is better than nothing, if no other replica has it.
type aside struct {
	path string
	db   *bbolt.DB // nil: it is opened when it is needed

	unreadable int // jobs of which something is damaged, as far as they are seen
}

// Fetch implements Source. It has never all.
func (a *aside) Fetch(ctx context.Context, after Place, to uint64, take func(p Piece, complete bool) error) (bool, error) {
	db := a.db
	if db == nil {
		if _, err := os.Stat(a.path); err != nil {
			return false, nil // there is none
		}
		err := guard(func() (err error) {
			db, err = bbolt.Open(a.path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
			return err
		})
		if err != nil {
			return false, nil // nothing of it can be read
		}
		defer func() { _ = guard(db.Close) }()
	}
	// From both ends, since a page that cannot be read ends the way.
	last, err := a.walk(ctx, db, 0, true, after, to, take)
	if isDamaged(err) {
		_, err = a.walk(ctx, db, last, false, after, to, take)
	}
	if isDamaged(err) {
		err = nil
	}
	return false, err
}

func isDamaged(err error) bool {
	_, ok := errors.AsType[*DamageError](err)
	return ok
}

// walk gives the jobs up or down to, not including, one: the last on the way.
func (a *aside) walk(ctx context.Context, db *bbolt.DB, end fsm.JobID, up bool, after Place, to uint64, take func(p Piece, complete bool) error) (last fsm.JobID, err error) {
	var stop error
	err = guard(func() error {
		return db.View(func(tx *bbolt.Tx) error {
			jobs := tx.Bucket(bucketJobs)
			if jobs == nil {
				return damaged("it has no jobs")
			}
			c := jobs.Cursor()
			first, next := c.First, c.Next
			if !up {
				first, next = c.Last, c.Prev
			}
			for k, v := first(); len(k) == 8 && stop == nil; k, v = next() {
				id := fsm.JobID(binary.BigEndian.Uint64(k))
				if stop = ctx.Err(); stop != nil || !up && id <= end {
					break
				}
				last = id
				list, err := readWhole(tx, k, v)
				if err != nil {
					a.unreadable++
					continue
				}
				if p := list[len(list)-1].Place; p.Index > to || !after.before(p) {
					continue
				}
				for _, p := range list {
					if stop = take(p, false); stop != nil {
						break
					}
				}
			}
			return nil //nolint:nilerr // it was counted
		})
	})
	if stop != nil {
		return last, stop
	}
	return last, err
}

// readWhole reads a job with its parts, all of which are right.
func readWhole(tx *bbolt.Tx, k, v []byte) (list []Piece, err error) {
	err = guard(func() error {
		s, err := readValue(k, v)
		if err != nil {
			return err
		}
		head, err := headOf(k, s)
		if err != nil {
			return err
		}
		p := Place{Index: s.index, Job: head.ID}
		for part := uint32(1); part <= s.parts; part++ {
			b, err := readPart(tx, p.Job, part)
			if err != nil {
				return err
			}
			list = append(list, Piece{Place: p, Part: part, Data: append([]byte(nil), b...)})
		}
		list = append(list, Piece{Place: p, Parts: s.parts, Data: append([]byte(nil), s.record...)})
		return nil
	})
	return list, err
}
