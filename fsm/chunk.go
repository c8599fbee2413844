package fsm

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// castagnoli is the table of CRC-32C, which the processors of our time compute
// in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Chunk is a run of tasks of one job as they were submitted. It is immutable
// and shared by the log entry, the replicated state, its forks and snapshots.
//
// Its blob holds the tasks one after another: policy (varint), number of
// dependencies (varint), each dependency as the distance down to it (varint,
// ≥ 1, descending distances), name (length, bytes), body (length, bytes; a
// dtask.v1.TaskBody).
type Chunk struct {
	First uint32 // index of its first task
	blob  []byte
	off   []uint32 // where each task begins in the blob
	edges uint32   // dependencies of all its tasks
	bad   bool     // built wrongly: no replica could decode it
}

// ChunkBuilder makes a chunk task by task. Not safe for concurrent use.
type ChunkBuilder struct {
	c Chunk
	e encoder
}

// NewChunkBuilder starts a chunk at a task index.
func NewChunkBuilder(first uint32) *ChunkBuilder {
	return &ChunkBuilder{c: Chunk{First: first}}
}

// Add appends a task. deps are ascending indexes, each lower than the task's;
// a chunk for which that is not so is refused as malformed.
func (b *ChunkBuilder) Add(name string, policy uint32, deps []uint32, body []byte) {
	self := b.c.First + uint32(len(b.c.off))      //nolint:gosec // a job has at most a million tasks
	b.c.off = append(b.c.off, uint32(len(b.e.b))) //nolint:gosec // a chunk is at most an entry
	b.e.u64(uint64(policy))
	b.e.u64(uint64(len(deps)))
	for _, dep := range deps {
		b.e.u64(uint64(self - dep))
	}
	b.c.edges += uint32(len(deps)) //nolint:gosec // bounded by the blob
	b.e.str(name)
	b.e.bytes(body)
}

// Len is the number of tasks added so far.
func (b *ChunkBuilder) Len() int { return len(b.c.off) }

// Size is the length of the blob so far, in bytes.
func (b *ChunkBuilder) Size() int { return len(b.e.b) }

// Chunk finishes the chunk; the builder must not be used any more.
func (b *ChunkBuilder) Chunk() *Chunk {
	b.c.blob = b.e.b
	c := Chunk{First: b.c.First, blob: b.c.blob}
	b.c.bad = c.index(uint64(len(b.c.off))) != nil
	return &b.c
}

// Len is the number of tasks.
func (c *Chunk) Len() int { return len(c.off) }

// Size is the length of the encoded tasks in bytes.
func (c *Chunk) Size() int { return len(c.blob) }

// Sum continues a CRC-32C over the blobs of a job's chunks. How a job is cut
// into chunks makes no difference to it.
func (c *Chunk) Sum(sum uint32) uint32 { return crc32.Update(sum, castagnoli, c.blob) }

func (c *Chunk) encode(e *encoder) {
	e.u64(uint64(c.First))
	e.u64(uint64(len(c.off)))
	e.bytes(c.blob)
}

// decodeChunk reads and checks a chunk: what it accepts, the accessors below
// can walk without further checks. The blob aliases the input.
func decodeChunk(d *decoder) *Chunk {
	c := &Chunk{First: d.u32()}
	n := d.u64()
	c.blob = d.bytes()
	if d.err != nil {
		return c
	}
	if err := c.index(n); err != nil {
		d.fail(fmt.Errorf("chunk: %w", err))
	}
	return c
}

// index finds the n tasks in the blob and checks them.
func (c *Chunk) index(n uint64) error {
	if n > uint64(len(c.blob)/4) || uint64(c.First)+n > 1<<32-1 {
		return errTruncated
	}
	c.off = make([]uint32, n)
	in := decoder{b: c.blob}
	for i := range c.off {
		c.off[i] = uint32(len(c.blob) - len(in.b)) //nolint:gosec // an entry is far below 4 GiB
		in.u32()                                   // policy: checked against the header when the chunk is applied
		self := uint64(c.First) + uint64(i)        //nolint:gosec // i counts from 0
		deps := in.count(1)
		last := self + 1
		for range deps {
			dist := in.u64()
			if dist == 0 || dist >= last {
				in.fail(fmt.Errorf("task %d has a dependency that is not lower than it and ascending", self))
			}
			last = dist
		}
		c.edges += uint32(deps) //nolint:gosec // bounded by the blob
		in.bytes()
		in.bytes()
	}
	if in.err == nil && len(in.b) > 0 {
		in.fail(fmt.Errorf("%d bytes left over", len(in.b)))
	}
	return in.err
}

// task is one task of a chunk, aliasing its blob.
type task struct {
	policy uint32
	deps   []byte // distances, still encoded
	ndeps  int
	name   []byte
	body   []byte
}

// at reads task i of the chunk.
func (c *Chunk) at(i uint32) task {
	b := c.blob[c.off[i]:]
	policy, n := binary.Uvarint(b)
	b = b[n:]
	ndeps, n := binary.Uvarint(b)
	b = b[n:]
	t := task{policy: uint32(policy), ndeps: int(ndeps), deps: b} //nolint:gosec // checked by decodeChunk
	for range ndeps {
		_, n = binary.Uvarint(b)
		b = b[n:]
	}
	t.name, b = lengthPrefixed(b)
	t.body, _ = lengthPrefixed(b)
	return t
}

// eachDep calls f with the indexes that a task depends on, ascending.
func (t task) eachDep(self uint32, f func(dep uint32)) {
	b := t.deps
	for range t.ndeps {
		dist, n := binary.Uvarint(b)
		b = b[n:]
		f(self - uint32(dist)) //nolint:gosec // checked by decodeChunk
	}
}

func lengthPrefixed(b []byte) (value, rest []byte) {
	n, w := binary.Uvarint(b)
	end := w + int(n) //nolint:gosec // checked by decodeChunk
	return b[w:end:end], b[end:]
}
