package history

import (
	"bytes"
	"encoding/binary"
	"errors"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
)

// A value in the bucket of jobs is the log index (8 bytes), the number of parts (4),
// and the record or, if there are parts, its head. A part is the next bytes of the
// record. Both are sealed. If the number of parts has the bit withTemplate, a templateRef
// follows it: the parts of the template belong between those of the record.
const (
	recordHeader = 12
	withTemplate = 1 << 31
	// maxInline is the longest record that is not split into parts, in bytes.
	maxInline = 16 << 10
	// partSize fills a page and its neighbors.
	partSize = 120 << 10
)

// storedRecord is a value of the bucket of jobs.
type storedRecord struct {
	index uint64
	parts uint32 // without those of the template
	data  []byte // the record, or its head

	template *templateRef // nil: the record is whole

	headSize int // of data; readHead fills it in
}

func (s *storedRecord) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, s.index)
	if s.template == nil {
		b = binary.BigEndian.AppendUint32(b, s.parts)
	} else {
		b = binary.BigEndian.AppendUint32(b, s.parts|withTemplate)
		b = s.template.append(b)
	}
	return append(b, s.data...)
}

// size is the length of what append appends.
func (s *storedRecord) size() int {
	n := recordHeader + len(s.data)
	if s.template != nil {
		n += templateRefSize
	}
	return n
}

// allParts is the number of parts, with those of the template.
func (s *storedRecord) allParts() uint32 {
	if s.template == nil {
		return s.parts
	}
	return s.parts + s.template.parts
}

// sameParts reports whether two records have the same parts.
func (s *storedRecord) sameParts(o *storedRecord) bool {
	if s.parts != o.parts || (s.template == nil) != (o.template == nil) {
		return false
	}
	return s.template == nil || *s.template == *o.template
}

// readRecord reads the sealed value of a job. The data lies in sealed.
func readRecord(key, sealed []byte) (storedRecord, error) {
	b, err := format.Open(key, sealed)
	if err != nil {
		return storedRecord{}, err
	}
	if len(b) < recordHeader {
		return storedRecord{}, format.Damaged("the record of job %x has %d bytes", key, len(b))
	}
	s := storedRecord{index: binary.BigEndian.Uint64(b), parts: binary.BigEndian.Uint32(b[8:]), data: b[recordHeader:]}
	if s.parts&withTemplate == 0 {
		return s, nil
	}
	s.parts &^= withTemplate
	if len(s.data) < templateRefSize {
		return storedRecord{}, format.Damaged("the record of job %x has no template", key)
	}
	s.template, s.data = parseTemplateRef(s.data), s.data[templateRefSize:]
	if s.template.before > s.parts || s.template.parts >= withTemplate {
		return storedRecord{}, format.Damaged("the template of job %x is out of place", key)
	}
	return s, nil
}

// readHead reads the value of a job and its head.
func readHead(key, sealed []byte) (storedRecord, fsm.Head, error) {
	s, err := readRecord(key, sealed)
	if err != nil {
		return s, fsm.Head{}, err
	}
	h, size, err := fsm.ReadHead(s.data)
	s.headSize = size
	if err == nil && !bytes.Equal(format.JobKey(h.ID), key) {
		err = errors.New("the record belongs to another job")
	}
	if err != nil {
		return s, fsm.Head{}, format.Damaged("job %x: %v", key, err)
	}
	return s, h, nil
}

// readPart reads a part of a record.
func readPart(tx *bbolt.Tx, id fsm.JobID, part uint32) ([]byte, error) {
	key := partKey(id, part)
	b := tx.Bucket(bucketParts).Get(key)
	if b == nil {
		return nil, format.Damaged("part %d of job %d is missing", part, id)
	}
	return format.Open(key, b)
}

// readAnyPart reads a part of a record, counted with those of its template.
func readAnyPart(tx *bbolt.Tx, id fsm.JobID, s *storedRecord, part uint32) ([]byte, error) {
	t := s.template
	switch {
	case t == nil || part <= t.before:
		return readPart(tx, id, part)
	case part-t.before <= t.parts:
		return readTemplatePart(tx, &t.sum, part-t.before)
	}
	return readPart(tx, id, part-t.parts)
}

func isDamaged(err error) bool {
	_, ok := errors.AsType[*format.DamageError](err)
	return ok
}

// cutter cuts what is written to it into parts.
type cutter struct {
	rest []byte                            // not yet a part
	n    uint32                            // parts so far
	put  func(part uint32, b []byte) error // takes ownership of b
}

// Write implements io.Writer.
func (c *cutter) Write(b []byte) (int, error) {
	c.rest = append(c.rest, b...)
	for len(c.rest) >= partSize {
		if err := c.cut(partSize); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func (c *cutter) cut(n int) error {
	part := append(make([]byte, 0, n+format.SumSize), c.rest[:n]...)
	c.rest = append(c.rest[:0], c.rest[n:]...)
	c.n++
	return c.put(c.n, part)
}

// finish puts the last part. What is written after it begins another one.
func (c *cutter) finish() error {
	if len(c.rest) > 0 {
		return c.cut(len(c.rest))
	}
	return nil
}

// splitter splits a record that is written to it into a head and parts if it is long.
type splitter struct {
	cutter

	head []byte // the whole record until it is split, then its head
	long bool   // it was split
}

// Write implements io.Writer.
func (c *splitter) Write(b []byte) (int, error) {
	if c.long {
		return c.cutter.Write(b)
	}
	c.head = append(c.head, b...)
	if len(c.head) <= maxInline {
		return len(b), nil
	}
	_, size, err := fsm.ReadHead(c.head)
	if err != nil {
		// The head is longer than maxInline and not complete yet.
		return len(b), nil //nolint:nilerr // it is read again with more of it
	}
	c.long = true
	_, err = c.cutter.Write(c.head[size:])
	c.head = c.head[:size]
	return len(b), err
}
