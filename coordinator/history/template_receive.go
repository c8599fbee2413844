package history

import (
	"io"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
)

// Jobs are sent, backed up and imported whole, so that any build can read them. A replica that
// receives a run of a schedule stores it apart from its template again.

// shareTemplates gives the runs among received jobs, whose parts must be stored, the form
// that encodeRun gives them. It returns another list if there are any.
func shareTemplates(tx *bbolt.Tx, m *meta, list []encoded) ([]encoded, error) {
	changed := false
	for i := range list {
		if list[i].run == nil {
			continue
		}
		e, ok, err := shareTemplate(tx, &list[i])
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if !changed {
			list, changed = append([]encoded(nil), list...), true
		}
		list[i] = e
		if err := storeReferences(tx, m, list[i:i+1]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// shareTemplate stores the parts of a received run again, apart from its template. ok is
// false if it stays whole.
func shareTemplate(tx *bbolt.Tx, e *encoded) (_ encoded, ok bool, err error) {
	whole, err := readRecord(format.JobKey(e.Job), e.value)
	if err != nil {
		return encoded{}, false, err
	}
	var before, after collector
	h := newMeasuredHash()
	if err := splitRecord(tx, e.Job, whole, &before, h, &after); err != nil || h.size < fsm.MinTemplate {
		return encoded{}, false, nil //nolint:nilerr // damage of a record is found when it is read
	}
	s := shared{ref: templateRef{sum: h.sum(), parts: partsOf(h.size)}, size: h.size, head: *e.run, data: whole.data}
	if !hasTemplate(tx, &s.ref.sum) {
		if err := storeTemplate(tx, e.Job, whole, &s.ref.sum); err != nil {
			return encoded{}, false, err
		}
	}
	own := before.end()
	s.ref.before = uint32(len(own)) //nolint:gosec // at most as many as the parts of the record
	own = append(own, after.end()...)
	rest := new(parts)
	for i, b := range own {
		s.parts++
		s.partBytes += len(b)
		rest.add(e.Job, uint32(i)+1, b) //nolint:gosec // as above
	}
	if err := rest.store(tx); err != nil {
		return encoded{}, false, err
	}
	return s.encoded(e.Position, nil), true, removeParts(tx, e.Job, s.parts, whole.parts)
}

// storeTemplate stores the template of a record that is stored whole.
func storeTemplate(tx *bbolt.Tx, id fsm.JobID, whole storedRecord, sum *templateSum) error {
	rest := new(parts)
	out := cutter{put: func(part uint32, b []byte) error {
		rest.addTemplate(sum, part, b)
		return nil
	}}
	err := splitRecord(tx, id, whole, io.Discard, &out, io.Discard)
	if err == nil {
		err = out.finish()
	}
	if err != nil {
		return err
	}
	return rest.store(tx)
}

func splitRecord(tx *bbolt.Tx, id fsm.JobID, whole storedRecord, before, template, after io.Writer) error {
	return fsm.SplitRecord(&partReader{tx: tx, id: id, record: whole}, before, template, after)
}

// removeParts removes the parts of a job after one, up to another one.
func removeParts(tx *bbolt.Tx, id fsm.JobID, after, last uint32) error {
	bucket := tx.Bucket(bucketParts)
	for part := after + 1; part <= last; part++ {
		if err := bucket.Delete(partKey(id, part)); err != nil {
			return err
		}
	}
	return nil
}

// collector cuts what is written to it into parts.
type collector struct {
	cutter

	list [][]byte
}

// Write implements io.Writer.
func (c *collector) Write(b []byte) (int, error) {
	c.put = func(_ uint32, b []byte) error {
		c.list = append(c.list, b)
		return nil
	}
	return c.cutter.Write(b)
}

// end returns the parts.
func (c *collector) end() [][]byte {
	_ = c.finish() // put returns no error
	return c.list
}
