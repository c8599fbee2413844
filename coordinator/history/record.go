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
// record. Both are sealed.
const (
	recordHeader = 12
	// maxInline is the longest record that is not split into parts, in bytes.
	maxInline = 16 << 10
	// partSize fills a page and its neighbors.
	partSize = 120 << 10
)

// storedRecord is a value of the bucket of jobs.
type storedRecord struct {
	index uint64
	parts uint32
	data  []byte // the record, or its head

	headSize int // of data; readHead fills it in
}

func (s storedRecord) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, s.index)
	b = binary.BigEndian.AppendUint32(b, s.parts)
	return append(b, s.data...)
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
	return storedRecord{index: binary.BigEndian.Uint64(b), parts: binary.BigEndian.Uint32(b[8:]), data: b[recordHeader:]}, nil
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

func isDamaged(err error) bool {
	_, ok := errors.AsType[*format.DamageError](err)
	return ok
}

// splitter splits a record that is written to it into a head and parts if it is long.
type splitter struct {
	head []byte                            // the whole record until it is split, then its head
	rest []byte                            // not yet a part
	long bool                              // it was split
	n    uint32                            // parts so far
	put  func(part uint32, b []byte) error // takes ownership of b
}

// Write implements io.Writer.
func (c *splitter) Write(b []byte) (int, error) {
	if !c.long {
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
		c.rest = append(c.rest, c.head[size:]...)
		c.head = c.head[:size]
	} else {
		c.rest = append(c.rest, b...)
	}
	for len(c.rest) >= partSize {
		if err := c.split(partSize); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func (c *splitter) split(n int) error {
	part := append(make([]byte, 0, n+format.SumSize), c.rest[:n]...)
	c.rest = append(c.rest[:0], c.rest[n:]...)
	c.n++
	return c.put(c.n, part)
}

// finish puts the last part.
func (c *splitter) finish() error {
	if c.long && len(c.rest) > 0 {
		return c.split(len(c.rest))
	}
	return nil
}
