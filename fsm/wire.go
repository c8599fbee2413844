package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// encoder appends varints, strings and fixed numbers to a buffer. It is the
// bottom of both the log's and the snapshot's format.
type encoder struct{ b []byte }

func (e *encoder) u64(v uint64) { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) i64(v int64)  { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) byte(v byte)  { e.b = append(e.b, v) }
func (e *encoder) bool(v bool) {
	if v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}
func (e *encoder) str(s string)   { e.u64(uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) bytes(p []byte) { e.u64(uint64(len(p))); e.b = append(e.b, p...) }

// errTruncated is the fault of input that ends too early or claims more than
// it has.
var errTruncated = errors.New("truncated or oversized input")

// decoder reads what encoder wrote. The first fault sticks; every read after it
// gives zero, so that decode methods need no checks of their own. Lengths and
// counts are checked against what is left before anything is allocated.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *decoder) u64() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail(errTruncated)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) i64() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail(errTruncated)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) u32() uint32 {
	v := d.u64()
	if v > 1<<32-1 {
		d.fail(fmt.Errorf("number %d is above 32 bits", v))
		return 0
	}
	return uint32(v)
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail(errTruncated)
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) bool() bool {
	v := d.byte()
	if v > 1 {
		d.fail(fmt.Errorf("byte %d is no truth value", v))
	}
	return v == 1
}

// bytes aliases the input: entries and snapshot frames are never changed.
func (d *decoder) bytes() []byte {
	n := d.u64()
	if n > uint64(len(d.b)) {
		d.fail(errTruncated)
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	if n == 0 {
		return nil
	}
	return v
}

func (d *decoder) str() string { return string(d.bytes()) }

// count reads a number of items of at least size bytes each.
func (d *decoder) count(size int) int {
	n := d.u64()
	if n > uint64(len(d.b)/size) { //nolint:gosec // a length
		d.fail(errTruncated)
		return 0
	}
	return int(n) //nolint:gosec // bounded by the length of the input
}
