package fsm

import "fmt"

// Entry is one log entry: operations that take effect in order.
type Entry struct {
	NowMS int64 // the leader's wall clock when it closed the entry; used for time stamps only
	// After is the number of entries that must have been applied before this
	// one; 0 if it does not matter. The entry is rejected as a whole if one of
	// them is missing.
	After uint64
	Ops   []Op
}

// UnknownError is returned for an entry or a snapshot of a format that this
// binary does not know, older or newer. The replica must halt: skipping the
// unknown part would make it diverge.
type UnknownError struct{ What string }

// Error names the unknown part.
func (e *UnknownError) Error() string {
	return "unknown " + e.What + ": written by another version of dtask"
}

// entryVersion is the first byte of an entry. An entry is: version (1 byte),
// time (zigzag varint, ms), number of entries before it (varint), number of
// operations (varint), operations. An operation is its kind (1 byte) and its
// fields in order: numbers as varints, strings and bytes with their length in
// front. References to tasks, attempts and workers are written as differences
// to the item before.
const entryVersion = 3

// Encode appends an entry to b in the format of the log.
func Encode(b []byte, entry Entry) []byte {
	w := struct { // one allocation
		e encoder
		c coder
	}{e: encoder{b: append(b, entryVersion)}}
	w.c.e = &w.e
	w.e.i64(entry.NowMS)
	w.e.u64(entry.After)
	w.e.u64(uint64(len(entry.Ops)))
	for _, op := range entry.Ops {
		w.e.byte(byte(op.kind()))
		w.c.last = HeldAttempt{}
		op.fields(&w.c)
	}
	return w.e.b
}

// Decode decodes an entry. The result shares memory with data, but no state
// that applies it does, so that no entry stays in memory for a part of it.
// Decode never panics and allocates at most a small multiple of the input's
// length. The error for an unknown format is an *UnknownError.
func Decode(data []byte) (Entry, error) {
	d := decoder{b: data}
	if v := d.byte(); d.err == nil && v != entryVersion {
		return Entry{}, &UnknownError{What: fmt.Sprintf("log format %d", v)}
	}
	entry := Entry{NowMS: d.i64(), After: d.u64()}
	n := d.count()
	entry.Ops = make([]Op, 0, min(n, 1024))
	c := coder{d: &d}
	for range n {
		k := d.byte()
		if d.err != nil {
			break
		}
		if int(k) >= len(operations) || operations[k].make == nil {
			return Entry{}, &UnknownError{What: fmt.Sprintf("operation %d", k)}
		}
		op := operations[k].make()
		c.last = HeldAttempt{}
		op.fields(&c)
		entry.Ops = append(entry.Ops, op)
	}
	if err := d.done(); err != nil {
		return Entry{}, fmt.Errorf("decoding entry: %w", err)
	}
	return entry, nil
}
