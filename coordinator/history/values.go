package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/dtask/dtask/fsm"
)

// A value in the bucket of jobs is: log index (8 bytes), number of parts (4), the
// record or, if there are parts, its head; then a CRC-32C over key and all of
// that. A part is a piece of the record and such a sum.
const (
	valueHeader = 12
	sumSize     = 4
	// inline is the longest record that is not cut into parts, in bytes.
	inline = 16 << 10
	// partSize makes a page and its neighbours full.
	partSize = 120 << 10
)

// DamageError says that the file does not hold what was written.
type DamageError struct{ Detail string }

// Error implements error.
func (e *DamageError) Error() string { return "the history file is damaged: " + e.Detail }

func damaged(format string, args ...any) error {
	return &DamageError{Detail: fmt.Sprintf(format, args...)}
}

// sealed adds the sum.
func sealed(key, value []byte) []byte {
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
	return binary.BigEndian.AppendUint32(value, sum)
}

// opened checks the sum and takes it off. The result lies in b.
func opened(key, b []byte) ([]byte, error) {
	if len(b) < sumSize {
		return nil, damaged("the value of %x has %d bytes", key, len(b))
	}
	value, tail := b[:len(b)-sumSize], b[len(b)-sumSize:]
	if crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value) != binary.BigEndian.Uint32(tail) {
		return nil, damaged("the value of %x does not match its checksum", key)
	}
	return value, nil
}

// stored is a value of the bucket of jobs.
type stored struct {
	index  uint64
	parts  uint32
	record []byte // or its head
}

func (s stored) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, s.index)
	b = binary.BigEndian.AppendUint32(b, s.parts)
	return append(b, s.record...)
}

// readStored reads a value that was opened.
func readStored(b []byte) (stored, error) {
	if len(b) < valueHeader {
		return stored{}, errors.New("too short")
	}
	return stored{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), b[valueHeader:]}, nil
}

// readValue opens and reads a value of a job.
func readValue(key, b []byte) (stored, error) {
	value, err := opened(key, b)
	if err != nil {
		return stored{}, err
	}
	s, err := readStored(value)
	if err != nil {
		return stored{}, damaged("job %x: %v", key, err)
	}
	return s, nil
}

// headOf reads the head of the job at a key.
func headOf(key []byte, s stored) (fsm.Head, error) {
	h, _, err := fsm.ReadHead(s.record)
	if err == nil && !bytes.Equal(jobKey(h.ID), key) {
		err = errors.New("it is of another job")
	}
	if err != nil {
		return fsm.Head{}, damaged("job %x: %v", key, err)
	}
	return h, nil
}

// cutter cuts a record that is written to it into parts.
type cutter struct {
	head []byte                            // all of it while it is short, then its head
	rest []byte                            // not yet a part
	long bool                              // it has parts
	n    uint32                            // parts so far
	put  func(part uint32, b []byte) error // takes b over
}

// Write implements io.Writer.
func (c *cutter) Write(b []byte) (int, error) {
	if !c.long {
		c.head = append(c.head, b...)
		if len(c.head) <= inline {
			return len(b), nil
		}
		_, size, err := fsm.ReadHead(c.head)
		if err != nil {
			// The head is longer than what is inline: it goes on.
			return len(b), nil //nolint:nilerr // it is read again with more of it
		}
		c.long = true
		c.rest = append(c.rest, c.head[size:]...)
		c.head = c.head[:size]
	} else {
		c.rest = append(c.rest, b...)
	}
	for len(c.rest) >= partSize {
		if err := c.cut(partSize); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func (c *cutter) cut(n int) error {
	part := append(make([]byte, 0, n+sumSize), c.rest[:n]...)
	c.rest = append(c.rest[:0], c.rest[n:]...)
	c.n++
	return c.put(c.n, part)
}

// close cuts the last part.
func (c *cutter) close() error {
	if c.long && len(c.rest) > 0 {
		return c.cut(len(c.rest))
	}
	return nil
}
