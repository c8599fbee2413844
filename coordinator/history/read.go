package history

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/coordinator/history/index"
	"github.com/dtask/dtask/fsm"
)

// Find returns the head of a job; ok is false if the history does not have it.
func (h *History) Find(id fsm.JobID) (head fsm.Head, ok bool, err error) {
	if a := h.pendingJob(id); a != nil {
		return a.Head(), true, nil
	}
	ok, err = h.readImport(id, func(r *importRecord) (err error) {
		head, _, err = r.head()
		return err
	})
	if ok || err != nil {
		return head, ok, err
	}
	err = h.view(func(tx *bbolt.Tx) (err error) {
		key := format.JobKey(id)
		if b := tx.Bucket(bucketJobs).Get(key); b != nil {
			_, head, err = readHead(key, b)
			ok = err == nil
		}
		return err
	})
	return head, ok, err
}

// Summary returns the head of a job and its summary, which Config.Summarize made; the
// summary is nil if the job has none, is not in the file yet, or is unknown. It reads
// only the beginning of the record.
func (h *History) Summary(id fsm.JobID) (head fsm.Head, summary []byte, err error) {
	if h.pendingJob(id) != nil {
		return head, nil, nil
	}
	ok, err := h.readImport(id, func(r *importRecord) (err error) {
		head, summary, err = r.summary()
		return err
	})
	if ok || err != nil {
		return head, summary, err
	}
	err = h.view(func(tx *bbolt.Tx) (err error) {
		key := format.JobKey(id)
		b := tx.Bucket(bucketJobs).Get(key)
		if b == nil {
			return nil
		}
		var s storedRecord
		if s, head, err = readHead(key, b); err != nil {
			return err
		}
		if summary, err = fsm.ReadSummary(recordReader(tx, id, s, s.headSize)); err != nil {
			return format.Damaged("job %d: %v", id, err)
		}
		return nil
	})
	return head, summary, err
}

// recordReader reads a record from an offset on.
func recordReader(tx *bbolt.Tx, id fsm.JobID, s storedRecord, from int) io.Reader {
	return io.MultiReader(bytes.NewReader(s.data[from:]), &partReader{tx: tx, id: id, record: s})
}

// Adopt puts a job into a fork of the state, so that it is read like any other; ok is
// false if the history does not have it. After an error the fork must not be used.
func (h *History) Adopt(st *fsm.State, id fsm.JobID) (ok bool, err error) {
	if a := h.pendingJob(id); a != nil {
		st.Adopt(a)
		return true, nil
	}
	ok, err = h.readImport(id, func(r *importRecord) error { return r.adopt(st) })
	if ok || err != nil {
		return ok, err
	}
	err = h.view(func(tx *bbolt.Tx) error {
		key := format.JobKey(id)
		b := tx.Bucket(bucketJobs).Get(key)
		if b == nil {
			return nil
		}
		s, err := readRecord(key, b)
		if err != nil {
			return err
		}
		// AdoptRecord copies what it reads: it may lie in the file's pages.
		if _, err := st.AdoptRecord(recordReader(tx, id, s, 0)); err != nil {
			return format.Damaged("%v", err)
		}
		ok = true
		return nil
	})
	return ok, err
}

// Size returns about how many bytes of the file are read with the record of a job; 0 if it
// is not there.
func (h *History) Size(id fsm.JobID) (size int64, err error) {
	err = h.view(func(tx *bbolt.Tx) error {
		key := format.JobKey(id)
		b := tx.Bucket(bucketJobs).Get(key)
		if b == nil {
			return nil
		}
		s, err := readRecord(key, b)
		size = int64(len(s.data)) + int64(s.allParts())*partSize
		return err
	})
	return size, err
}

// pendingJob returns a job that is not in the file yet. It must be called before the
// file is read, since a job moves from here to there.
func (h *History) pendingJob(id fsm.JobID) *fsm.ArchivedJob {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pending[id]
}

// view reads the file.
func (h *History) view(do func(tx *bbolt.Tx) error) error {
	err := h.file.view(do)
	if err != nil {
		h.checkDamage(err)
		return fmt.Errorf("reading history: %w", err)
	}
	return nil
}

// partReader reads the parts of a record, with those of its template.
type partReader struct {
	tx     *bbolt.Tx
	id     fsm.JobID
	record storedRecord
	n      uint32 // the current part
	b      []byte
}

// Read implements io.Reader.
func (r *partReader) Read(b []byte) (int, error) {
	for len(r.b) == 0 {
		if r.n == r.record.allParts() {
			return 0, io.EOF
		}
		r.n++
		var err error
		if r.b, err = readAnyPart(r.tx, r.id, &r.record, r.n); err != nil {
			return 0, err
		}
	}
	n := copy(b, r.b)
	r.b = r.b[n:]
	return n, nil
}

// Query is what a listing asks for; an unset field matches all jobs.
type Query = index.Query

// List passes the jobs that match to yield, newest first, until yield returns false.
// A listing that takes long stops early, so that others get their turn: then rest is
// above 0, and jobs below it were not searched.
func (h *History) List(ctx context.Context, q Query, yield func(fsm.Head) bool) (rest fsm.JobID, err error) {
	if q.Below == 0 {
		q.Below = math.MaxUint64
	}
	others := unwritten{pending: h.listPending(&q), imports: h.listImports(&q)}
	defer others.imports.unlock()
	more := true
	// giveDown passes on the others with at least an ID, but not that one: it was written to
	// the file in the meantime.
	giveDown := func(id, not fsm.JobID) error {
		for more {
			head, ok, err := others.next(id)
			if err != nil || !ok {
				return err
			}
			more = head.ID == not || yield(head)
		}
		return nil
	}
	err = h.view(func(tx *bbolt.Tx) (err error) {
		rest, err = index.Open(tx, tx.Bucket(bucketJobs)).Search(ctx, &q, func(key, value []byte) (bool, error) {
			_, head, err := readHead(key, value)
			if err != nil || !q.Match(&head.Job) {
				return err == nil, err
			}
			if err := giveDown(head.ID, head.ID); err != nil || others.imports.rest > head.ID {
				return false, err
			}
			more = more && yield(head)
			return more, nil
		})
		return err
	})
	if err == nil {
		err = giveDown(rest, 0)
	}
	return max(rest, others.imports.rest), err
}

// listPending returns the matching jobs that are not in the file yet, newest first.
// Like pendingJob, it must be called before the file is read.
func (h *History) listPending(q *Query) []*fsm.ArchivedJob {
	h.mu.Lock()
	list := make([]*fsm.ArchivedJob, 0, len(h.pending))
	for id, a := range h.pending {
		if id < q.Below {
			list = append(list, a)
		}
	}
	h.mu.Unlock()
	list = slices.DeleteFunc(list, func(a *fsm.ArchivedJob) bool {
		job := a.Job()
		return !q.Match(&job)
	})
	slices.SortFunc(list, func(a, b *fsm.ArchivedJob) int { return cmp.Compare(b.ID(), a.ID()) })
	return list
}
