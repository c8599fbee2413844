package fsm

import (
	"fmt"
)

// Codec turns entries into bytes and back. There is one implementation; the
// interface is the border behind which the format can change.
type Codec interface {
	// Encode appends the entry to b.
	Encode(b []byte, e Entry) []byte
	// Decode reads an entry. Results alias data; what the state
	// keeps does not, so that no entry stays in memory for a part of it. It never panics and
	// allocates no more than a small multiple of the input's length. An
	// operation or version that is not known is an *UnknownError: the replica
	// must halt, because to skip it is to diverge.
	Decode(data []byte) (Entry, error)
}

// Entry is one log entry: operations that take effect in order.
type Entry struct {
	NowMS int64 // the leader's wall clock when it closed the entry; used for stamps only
	// After is how many entries come before it; 0 if it does not matter. An entry that
	// was made on others is refused as a whole where one of them is missing.
	After uint64
	Ops   []Op
}

// UnknownError is returned for an entry that a newer leader wrote.
type UnknownError struct{ What string }

// Error says what is not known.
func (e *UnknownError) Error() string {
	return "entry has " + e.What + " that this binary does not know: upgrade it"
}

// Compact is the released log format.
//
// An entry is: version (1 byte, 1), now (zigzag varint, ms), number of entries
// before it (varint), number of operations (varint), operations. An operation is
// its kind (1 byte) and its fields in order: numbers as varints, strings and bytes
// with their length in front. Item lists are written with jobs, indexes and workers as differences
// to the item before, so that a run of tasks of one job costs one byte each.
type Compact struct{}

const compactVersion = 1

// Encode implements Codec.
func (Compact) Encode(b []byte, entry Entry) []byte {
	e := encoder{b: append(b, compactVersion)}
	e.i64(entry.NowMS)
	e.u64(entry.After)
	e.u64(uint64(len(entry.Ops)))
	for _, op := range entry.Ops {
		e.byte(byte(op.kind()))
		op.encode(&e)
	}
	return e.b
}

// Decode implements Codec.
func (Compact) Decode(data []byte) (Entry, error) {
	d := decoder{b: data}
	if v := d.byte(); d.err == nil && v != compactVersion {
		return Entry{}, &UnknownError{What: fmt.Sprintf("version %d", v)}
	}
	entry := Entry{NowMS: d.i64(), After: d.u64()}
	n := d.count(1)
	entry.Ops = make([]Op, 0, min(n, 1024))
	for range n {
		k := opKind(d.byte())
		if d.err != nil {
			break
		}
		op := newOp(k)
		if op == nil {
			return Entry{}, &UnknownError{What: fmt.Sprintf("operation %d", k)}
		}
		op.decode(&d)
		entry.Ops = append(entry.Ops, op)
	}
	if d.err == nil && len(d.b) > 0 {
		d.fail(fmt.Errorf("%d bytes left over", len(d.b)))
	}
	if d.err != nil {
		return Entry{}, fmt.Errorf("decoding entry: %w", d.err)
	}
	return entry, nil
}

// itemCoder writes and reads attempt references as differences.
type itemCoder struct{ last HeldAttempt }

func (c *itemCoder) attempt(e *encoder, a AttemptRef) {
	if a.Job == c.last.Job {
		e.i64((int64(a.Index) - int64(c.last.Index)) << 1)
	} else {
		e.i64((int64(a.Index) << 1) | 1)
		e.i64(int64(a.Job) - int64(c.last.Job)) //nolint:gosec // job numbers stay far below 2^63
	}
	e.u64(uint64(a.Attempt))
	c.last.AttemptRef = a
}

func (c *itemCoder) held(e *encoder, h HeldAttempt) {
	c.attempt(e, h.AttemptRef)
	e.i64(int64(h.Worker) - int64(c.last.Worker))
	c.last.Worker = h.Worker
}

func (c *itemCoder) readAttempt(d *decoder) AttemptRef {
	a := AttemptRef{TaskRef: TaskRef{Job: c.last.Job}}
	v := d.i64()
	index := v >> 1
	if v&1 == 0 {
		index += int64(c.last.Index)
	} else {
		a.Job = JobID(int64(c.last.Job) + d.i64()) //nolint:gosec // checked when it is looked up
	}
	if index < 0 || index > 1<<32-1 {
		d.fail(fmt.Errorf("task index %d is out of range", index))
		return a
	}
	a.Index = uint32(index)
	a.Attempt = d.u32()
	c.last.AttemptRef = a
	return a
}

func (c *itemCoder) readHeld(d *decoder) HeldAttempt {
	h := HeldAttempt{AttemptRef: c.readAttempt(d)}
	w := int64(c.last.Worker) + d.i64()
	if w < 0 || w > 1<<32-1 {
		d.fail(fmt.Errorf("worker number %d is out of range", w))
		return h
	}
	h.Worker = WorkerID(w)
	c.last.Worker = h.Worker
	return h
}
