package logs

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// An Attempt names an attempt of a task.
type Attempt struct {
	Job     uint64
	Index   uint32 // of the task
	Attempt uint32
}

// A Stream is an output stream of an attempt.
type Stream byte

// The streams.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// position is the place of a record: the number of its segment, which starts at 1, and
// the offset in it. The zero position means no record.
type position struct {
	segment uint64
	offset  uint32
}

// isBefore reports whether a record at p was written before one at q.
func (p position) isBefore(q position) bool {
	return p.segment < q.segment || p.segment == q.segment && p.offset < q.offset
}

// A record is a piece of output.
type record struct {
	of     Attempt
	stream Stream
	timeMS int64    // wall clock of the worker
	before position // of the attempt's previous record in a segment
	offset uint64   // bytes of the attempt's output before this record
	data   []byte
}

// recordHead is the length of the fixed fields: CRC-32C of all that follows, length of
// the data, job, index, attempt, stream, time, the previous record's segment and offset,
// and the offset in the output.
const recordHead = 4 + 4 + 8 + 4 + 4 + 1 + 8 + 8 + 4 + 8

// maxData bounds the data of a record, in bytes.
const maxData = 64 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged is returned for what is not a whole record.
var errDamaged = errors.New("the log is damaged, for example by a power failure")

// appendRecord appends the encoded record to b.
func appendRecord(b []byte, r *record) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.data))) //nolint:gosec // at most maxData
	b = binary.LittleEndian.AppendUint64(b, r.of.Job)
	b = binary.LittleEndian.AppendUint32(b, r.of.Index)
	b = binary.LittleEndian.AppendUint32(b, r.of.Attempt)
	b = append(b, byte(r.stream))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.timeMS)) //nolint:gosec // bits only
	b = binary.LittleEndian.AppendUint64(b, r.before.segment)
	b = binary.LittleEndian.AppendUint32(b, r.before.offset)
	b = binary.LittleEndian.AppendUint64(b, r.offset)
	b = append(b, r.data...)
	binary.LittleEndian.PutUint32(b[at:], crc32.Checksum(b[at+4:], castagnoli))
	return b
}

// parseRecord reads the record at the start of b, whose data it shares, and its length.
func parseRecord(b []byte) (r record, n int, err error) {
	if len(b) < recordHead {
		return r, 0, errDamaged
	}
	size := binary.LittleEndian.Uint32(b[4:])
	n = recordHead + int(size)
	if size > maxData || len(b) < n || crc32.Checksum(b[4:n], castagnoli) != binary.LittleEndian.Uint32(b) {
		return r, 0, errDamaged
	}
	r.of = Attempt{Job: binary.LittleEndian.Uint64(b[8:]), Index: binary.LittleEndian.Uint32(b[16:]), Attempt: binary.LittleEndian.Uint32(b[20:])}
	r.stream = Stream(b[24])
	r.timeMS = int64(binary.LittleEndian.Uint64(b[25:])) //nolint:gosec // bits only
	r.before = position{binary.LittleEndian.Uint64(b[33:]), binary.LittleEndian.Uint32(b[41:])}
	r.offset = binary.LittleEndian.Uint64(b[45:])
	r.data = b[recordHead:n]
	if r.stream != Stdout && r.stream != Stderr {
		return r, 0, errDamaged
	}
	return r, n, nil
}
