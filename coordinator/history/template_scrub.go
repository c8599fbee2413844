package history

import (
	"bytes"
	"crypto/sha256"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
)

// verifyReference checks that the file has the template of a job, and has the job among
// those of the template.
func verifyReference(tx *bbolt.Tx, s *storedRecord, id fsm.JobID) error {
	if s.template == nil {
		return nil
	}
	bucket, sum := tx.Bucket(bucketTemplates), s.template.sum
	entry, key := bucket.Get(sum[:]), sum.refKey(id)
	reference := bucket.Get(key)
	if entry == nil || reference == nil {
		return format.Damaged("template %x of job %d, or its reference, is missing", sum[:], id)
	}
	t, err := openTemplate(sum[:], entry)
	if err == nil && t.parts != s.template.parts {
		err = format.Damaged("template %x has %d parts, and %d in job %d", sum[:], t.parts, s.template.parts, id)
	}
	if err == nil {
		_, err = format.Open(key, reference)
	}
	return err
}

// templateScrubber checks that each template is what its name says, and that all its
// references are those of jobs.
type templateScrubber struct {
	next []byte // the key to continue with
	part uint32 // checked parts of the template with that key
	hash *measuredHash
}

// batch checks templates until size is scrubBatch, and adds what it has checked to size.
func (s *templateScrubber) batch(tx *bbolt.Tx, size *int) (more bool, err error) {
	c := tx.Bucket(bucketTemplates).Cursor()
	k, v := c.Seek(s.next)
	if !bytes.Equal(k, s.next) { // it was deleted meanwhile
		s.part = 0
	}
	for ; k != nil; k, v = c.Next() {
		s.next = bytes.Clone(k)
		if *size >= scrubBatch {
			return true, nil
		}
		*size += len(k) + len(v)
		if len(k) != sha256.Size {
			if err := verifyReferenced(tx, k, v); err != nil {
				return false, err
			}
			continue
		}
		done, err := s.template(tx, templateSum(k), v, size)
		if err != nil || !done {
			return err == nil, err
		}
		// The references follow. A template without one would stay forever.
		if next, _ := c.Next(); !bytes.HasPrefix(next, k) {
			return false, format.Damaged("template %x belongs to no job", k)
		}
		c.Prev()
	}
	return false, nil
}

// template checks a template; done is false if some parts are left for the next batch.
func (s *templateScrubber) template(tx *bbolt.Tx, sum templateSum, sealed []byte, size *int) (done bool, err error) {
	t, err := openTemplate(sum[:], sealed)
	if err != nil {
		return false, err
	}
	if s.part == 0 {
		s.hash = newMeasuredHash()
	}
	for s.part < t.parts {
		if *size >= scrubBatch {
			return false, nil
		}
		b, err := readTemplatePart(tx, &sum, s.part+1)
		if err != nil {
			return false, err
		}
		_, _ = s.hash.Write(b) // never fails
		*size += len(b)
		s.part++
	}
	s.part = 0
	if s.hash.sum() != sum || s.hash.size != t.size {
		return false, format.Damaged("template %x has other contents", sum[:])
	}
	return true, nil
}

// verifyReferenced checks that a reference is that of a job.
func verifyReferenced(tx *bbolt.Tx, key, sealed []byte) error {
	if _, err := format.Open(key, sealed); err != nil {
		return err
	}
	id, ok := format.ParseJobKey(key[min(len(key), sha256.Size):])
	if !ok {
		return format.Damaged("invalid reference %x to a template", key)
	}
	value := tx.Bucket(bucketJobs).Get(format.JobKey(id))
	if value == nil {
		return format.Damaged("template %x belongs to job %d, which is missing", key[:sha256.Size], id)
	}
	s, err := readRecord(format.JobKey(id), value)
	if err == nil && (s.template == nil || s.template.sum != templateSum(key[:sha256.Size])) {
		err = format.Damaged("job %d has another template than %x", id, key[:sha256.Size])
	}
	return err
}
