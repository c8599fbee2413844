package history

import (
	"bytes"
	"fmt"
	"io"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/fsm"
)

// Find gives the head of a job; ok is false if it is not here.
func (h *History) Find(id fsm.JobID) (head fsm.Head, ok bool, err error) {
	if a := h.waiting(id); a != nil {
		return a.Head(), true, nil
	}
	err = h.view(func(tx *bbolt.Tx) error {
		key := jobKey(id)
		b := tx.Bucket(bucketJobs).Get(key)
		if b == nil {
			return nil
		}
		s, err := readValue(key, b)
		if err == nil {
			head, err = headOf(key, s)
			ok = err == nil
		}
		return err
	})
	return head, ok, err
}

// Adopt puts a job into a fork of the state, so that it is read as the others are;
// ok is false if it is not here. After an error the fork must not be used.
func (h *History) Adopt(st *fsm.State, id fsm.JobID) (ok bool, err error) {
	if a := h.waiting(id); a != nil {
		st.Adopt(a)
		return true, nil
	}
	err = h.view(func(tx *bbolt.Tx) error {
		key := jobKey(id)
		b := tx.Bucket(bucketJobs).Get(key)
		if b == nil {
			return nil
		}
		s, err := readValue(key, b)
		if err != nil {
			return err
		}
		// What is read may lie in the file's pages: it is copied.
		r := io.MultiReader(bytes.NewReader(s.record), &partReader{tx: tx, id: id, parts: s.parts})
		if _, err := st.AdoptRecord(r); err != nil {
			return damaged("%v", err)
		}
		ok = true
		return nil
	})
	return ok, err
}

// waiting gives a job that is not in the file yet. It must be asked before the file.
func (h *History) waiting(id fsm.JobID) *fsm.ArchivedJob {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pending[id]
}

// view reads the file, and notes if it is damaged.
func (h *History) view(do func(tx *bbolt.Tx) error) error {
	err := h.file.view(do)
	if err != nil {
		h.blame(err)
		return fmt.Errorf("reading the history: %w", err)
	}
	return nil
}

// partReader reads the parts of a record.
type partReader struct {
	tx    *bbolt.Tx
	id    fsm.JobID
	n     uint32 // the part that is being read
	parts uint32
	b     []byte
}

// Read implements io.Reader.
func (r *partReader) Read(b []byte) (int, error) {
	for len(r.b) == 0 {
		if r.n == r.parts {
			return 0, io.EOF
		}
		r.n++
		var err error
		if r.b, err = readPart(r.tx, r.id, r.n); err != nil {
			return 0, err
		}
	}
	n := copy(b, r.b)
	r.b = r.b[n:]
	return n, nil
}

func readPart(tx *bbolt.Tx, id fsm.JobID, part uint32) ([]byte, error) {
	key := partKey(id, part)
	b := tx.Bucket(bucketParts).Get(key)
	if b == nil {
		return nil, damaged("part %d of job %d is not there", part, id)
	}
	return opened(key, b)
}
