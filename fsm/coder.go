package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// encoder appends varints, strings and bytes to a buffer. The formats of the
// log and of snapshots consist of these.
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

// errTruncated reports input that ends too early or claims a length beyond
// its end.
var errTruncated = errors.New("truncated or oversized input")

// decoder reads the encoder's output. It keeps the first error, and every
// later read returns zero, so that callers check for errors only at the end.
// Lengths and counts are checked against the remaining input before memory is
// allocated.
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
	if len(d.b) > 0 && d.b[0] < 0x80 { // most numbers take one byte
		v := d.b[0]
		d.b = d.b[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail(errTruncated)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) i64() int64 {
	if len(d.b) > 0 && d.b[0] < 0x80 {
		v := d.b[0]
		d.b = d.b[1:]
		return int64(v>>1) ^ -int64(v&1)
	}
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
		d.fail(fmt.Errorf("number %d exceeds 32 bits", v))
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
		d.fail(fmt.Errorf("invalid boolean %d", v))
	}
	return v == 1
}

// bytes returns part of the input: entries and snapshot frames never change.
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

// count reads a number of items. Each takes at least one byte.
func (d *decoder) count() int {
	n := d.u64()
	if n > uint64(len(d.b)) {
		d.fail(errTruncated)
		return 0
	}
	return int(n) //nolint:gosec // bounded by the length of the input
}

// done returns the decoder's error, or one if input is left over.
func (d *decoder) done() error {
	if d.err == nil && len(d.b) > 0 {
		d.err = fmt.Errorf("%d bytes left over", len(d.b))
	}
	return d.err
}

// coder encodes fields, or decodes them in the same order: each format is
// described once for both directions. Exactly one of e and d is set.
type coder struct {
	e    *encoder
	d    *decoder
	last HeldAttempt // the previous item; references are encoded as differences to it
}

// fail stops decoding.
func (c *coder) fail(err error) {
	if c.d != nil {
		c.d.fail(err)
	}
}

// number codes an unsigned number or an enum.
func number[T ~int32 | ~uint8 | ~uint32 | ~uint64](c *coder, v *T) {
	if c.e != nil {
		c.e.u64(uint64(*v))
		return
	}
	n := c.d.u64()
	if *v = T(n); uint64(*v) != n {
		c.d.fail(fmt.Errorf("number %d is out of range", n))
	}
}

// i64 codes a signed number.
func (c *coder) i64(v *int64) {
	if c.e != nil {
		c.e.i64(*v)
	} else {
		*v = c.d.i64()
	}
}

func (c *coder) bool(v *bool) {
	if c.e != nil {
		c.e.bool(*v)
	} else {
		*v = c.d.bool()
	}
}

func (c *coder) str(v *string) {
	if c.e != nil {
		c.e.str(*v)
	} else {
		*v = c.d.str()
	}
}

// bytes codes bytes that, decoded, share the memory of the input.
func (c *coder) bytes(v *[]byte) {
	if c.e != nil {
		c.e.bytes(*v)
	} else {
		*v = c.d.bytes()
	}
}

// clone codes bytes that outlive their entry. A copy keeps the entry from
// staying in memory.
func (c *coder) clone(v *[]byte) {
	c.bytes(v)
	if c.d != nil {
		*v = bytes.Clone(*v)
	}
}

func (c *coder) digest(v *[16]byte) {
	switch {
	case c.e != nil:
		c.e.b = append(c.e.b, v[:]...)
	case len(c.d.b) < len(v):
		c.d.fail(errTruncated)
	default:
		copy(v[:], c.d.b)
		c.d.b = c.d.b[len(v):]
	}
}

func (c *coder) hash(v *[sha256Len]byte) {
	switch {
	case c.e != nil:
		c.e.b = append(c.e.b, v[:]...)
	case len(c.d.b) < len(v):
		c.d.fail(errTruncated)
	default:
		copy(v[:], c.d.b)
		c.d.b = c.d.b[len(v):]
	}
}

// priority codes a priority, or 0 for none.
func (c *coder) priority(v *dtaskv1.Priority) {
	if number(c, v); *v < 0 || *v > dtaskv1.Priority_PRIORITY_URGENT {
		c.fail(fmt.Errorf("invalid priority %d", *v))
	}
}

// list codes a number of items and each of them. Memory grows with the
// decoded items, not with the number that damaged input claims.
func list[T any](c *coder, items *[]T, code func(*T)) {
	if c.e != nil {
		c.e.u64(uint64(len(*items)))
		for i := range *items {
			code(&(*items)[i])
		}
		return
	}
	n := c.d.count()
	if n == 0 {
		return
	}
	decoded := make([]T, 0, min(n, len(c.d.b)/2+1)) // most items take two bytes or more
	for i := 0; i < n && c.d.err == nil; i++ {
		decoded = append(decoded, *new(T))
		code(&decoded[i])
	}
	*items = decoded
}

// task codes a task. A run of tasks of one job costs one byte each.
func (c *coder) task(t *TaskRef) {
	if c.e != nil {
		c.e.b = appendTask(c.e.b, *t, c.last.TaskRef)
	} else {
		*t = c.d.task(c.last.TaskRef)
	}
	c.last.TaskRef = *t
}

func appendTask(b []byte, t, last TaskRef) []byte {
	if t.Job == last.Job {
		return binary.AppendVarint(b, (int64(t.Index)-int64(last.Index))<<1)
	}
	b = binary.AppendVarint(b, int64(t.Index)<<1|1)
	return binary.AppendVarint(b, int64(t.Job)-int64(last.Job)) //nolint:gosec // job numbers stay far below 2^63
}

func (d *decoder) task(last TaskRef) TaskRef {
	t, v := last, d.i64()
	index := v >> 1
	if v&1 == 0 {
		index += int64(last.Index)
	} else {
		t.Job = JobID(int64(last.Job) + d.i64()) //nolint:gosec // checked when it is looked up
	}
	if index < 0 || index > math.MaxUint32 {
		d.fail(fmt.Errorf("task index %d is out of range", index))
	}
	t.Index = uint32(index) //nolint:gosec // an error if it is out of range
	return t
}

func (c *coder) attempt(a *AttemptRef) {
	c.task(&a.TaskRef)
	number(c, &a.Attempt)
}

func (c *coder) held(h *HeldAttempt) {
	if c.e != nil {
		b := appendTask(c.e.b, h.TaskRef, c.last.TaskRef)
		b = binary.AppendUvarint(b, uint64(h.Attempt))
		c.e.b = binary.AppendVarint(b, int64(h.Worker)-int64(c.last.Worker))
		c.last = *h
		return
	}
	h.TaskRef = c.d.task(c.last.TaskRef)
	h.Attempt = c.d.u32()
	w := int64(c.last.Worker) + c.d.i64()
	if w < 0 || w > math.MaxUint32 {
		c.d.fail(fmt.Errorf("worker number %d is out of range", w))
	}
	h.Worker = WorkerID(w) //nolint:gosec // an error if it is out of range
	c.last = *h
}

// indexes codes ascending indexes of tasks as differences.
func (c *coder) indexes(tasks *[]uint32) {
	last := uint32(0)
	list(c, tasks, func(i *uint32) {
		step := *i - last
		number(c, &step)
		*i = last + step
		last = *i
	})
}
