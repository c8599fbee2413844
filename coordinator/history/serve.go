package history

import (
	"bytes"
	"context"
	"errors"
	"os"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/history/format"
)

// serveBatch is how many bytes of records are read in one transaction.
const serveBatch = 1 << 20

// Serve is Source.Fetch for another replica. No transaction is open while it calls
// send.
func (h *History) Serve(ctx context.Context, after Position, to uint64, send func(c Chunk, complete bool) error) (complete bool, err error) {
	h.mu.Lock()
	taken := h.takenToLocked()
	h.mu.Unlock()
	if err := h.Sync(ctx, min(to, taken)); err != nil {
		return false, err
	}
	complete = h.completeFor(after, to)
	for {
		f, g := h.currentImport()
		if f != nil && !after.before(g.From) && after.before(f.end(to)) {
			if after, complete, err = h.serveImports(ctx, f, after, f.end(to), complete, send); err != nil {
				return false, err
			}
			continue
		}
		upTo, rest := to, f != nil && after.before(g.From) && g.From.Index <= to
		if rest {
			upTo = g.From.Index // what follows is not in the file yet
		}
		var heads []served
		err := h.view(func(tx *bbolt.Tx) (err error) {
			heads, err = readHeads(tx, after, upTo)
			return err
		})
		if err != nil {
			return false, err
		}
		for _, c := range heads {
			if err := h.serveJob(c, complete, send); err != nil {
				return false, err
			}
			after = c.Position
		}
		switch {
		case len(heads) == 0 && rest:
			after = g.From
		case len(heads) == 0:
			// The file may have been quarantined in the meantime.
			return complete && h.completeFor(after, to), ctx.Err()
		}
	}
}

// serveImports is Serve for the jobs after a position and up to another one that are to be
// imported. It returns where it has come to: not to the end if they were imported meanwhile.
func (h *History) serveImports(
	ctx context.Context, f *importFile, after, end Position, complete bool, send func(c Chunk, complete bool) error,
) (Position, bool, error) {
	cursor, _, err := f.cursor(after)
	for err == nil {
		var c Chunk
		c, err = cursor.next()
		switch {
		case isDamaged(err):
			complete = false
			_ = h.importFailed(err) // logs it
			err = cursor.skipJob()
		case err == nil && (c.Data == nil || end.before(c.Position)):
			return end, complete, ctx.Err()
		case err == nil:
			if err := send(c, complete); err != nil {
				return after, false, err
			}
			if c.Number == 0 {
				after = c.Position
			}
		}
	}
	if errors.Is(err, os.ErrClosed) {
		return after, complete, nil
	}
	return after, false, h.importFailed(err)
}

// completeFor reports whether the file lacks no job of a range of the log.
func (h *History) completeFor(after Position, to uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.damaged || h.meta.completeTo < to {
		return false
	}
	for _, gaps := range [][]gap{h.meta.gaps, h.newGaps} {
		for _, g := range gaps {
			if !h.hasAllLocked(g) && g.From.Index < to && g.To > after.Index {
				return false
			}
		}
	}
	return true
}

// served is the head of a record that is sent.
type served struct {
	Chunk

	record storedRecord // without its data
}

// readHeads reads up to serveBatch bytes of records, without their parts.
func readHeads(tx *bbolt.Tx, after Position, to uint64) (list []served, err error) {
	jobs, c, size := tx.Bucket(bucketJobs), tx.Bucket(bucketOrder).Cursor(), 0
	for k, _ := c.Seek(after.key()); k != nil && size < serveBatch; k, _ = c.Next() {
		p, ok := parsePosition(k)
		if !ok || p.Index > to {
			break
		}
		if !after.before(p) {
			continue
		}
		key := format.JobKey(p.Job)
		s, err := readRecord(key, jobs.Get(key))
		if err != nil {
			return nil, err
		}
		list = append(list, served{Chunk{Position: p, Total: s.allParts(), Data: bytes.Clone(s.data)}, storedRecord{parts: s.parts, template: s.template}})
		size += len(s.data)
	}
	return list, nil
}

// serveJob sends a record, unless it expires or is stored in another form meanwhile. The
// receiver ignores parts without their head.
func (h *History) serveJob(head served, complete bool, send func(c Chunk, complete bool) error) error {
	for part := uint32(1); part <= head.Total; part++ {
		var b []byte
		err := h.view(func(tx *bbolt.Tx) error {
			key := format.JobKey(head.Job)
			value := tx.Bucket(bucketJobs).Get(key)
			if value == nil {
				return nil // it expired in the meantime
			}
			now, err := readRecord(key, value)
			if err != nil || !now.sameParts(&head.record) {
				return err
			}
			found, err := readAnyPart(tx, head.Job, &now, part)
			b = bytes.Clone(found)
			return err
		})
		if err != nil || b == nil {
			return err
		}
		if err := send(Chunk{Position: head.Position, Number: part, Data: b}, complete); err != nil {
			return err
		}
	}
	return send(head.Chunk, complete)
}
