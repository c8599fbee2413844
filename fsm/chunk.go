package fsm

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"slices"
)

// castagnoli is the table of CRC-32C, which current processors compute in
// hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Chunk is a run of tasks of one job as they were submitted. It is immutable
// and shared by the log entry, the state, its forks and snapshots.
//
// Its blob holds the tasks one after another: policy (varint), number of
// dependencies (varint), each dependency as the distance down to it (varint,
// ≥ 1, descending), name (length, bytes), body (length, bytes; a
// dtask.v1.TaskBody). If the number of dependencies has the bit
// withConditions, the distances are followed by the condition of each
// dependency (varint).
//
// A chunk of an array, or of a part of its items, has a record and items
// instead of tasks: see array.go.
type Chunk struct {
	First         uint32 // index of its first task
	blob          []byte
	off           []uint32 // offsets of the tasks, or of the items of an array, in the blob
	edges         uint32   // dependencies of all its tasks; for an array, those of one task
	invalid       bool     // no replica could decode it
	conditions    bool     // a dependency has a condition other than WhenCompleted
	unnamed       bool     // a task has no name: every job rejects it
	mixedPolicies bool     // its tasks do not all have the policy of the first

	ofArray bool
	array   *Array // the record, in the first chunk of an array
	part    uint32 // of an array's chunks; 0 is the first
	size    uint32 // items of a task of the array
	n       uint32 // tasks of the array in this chunk
}

// ChunkBuilder builds a chunk task by task. Not safe for concurrent use.
type ChunkBuilder struct {
	c      Chunk
	e      encoder
	policy uint32 // of the last task
}

// NewChunkBuilder starts a chunk at a task index.
func NewChunkBuilder(first uint32) *ChunkBuilder {
	return &ChunkBuilder{c: Chunk{First: first}}
}

// Grow reserves memory for tasks of a total encoded size.
func (b *ChunkBuilder) Grow(tasks, size int) {
	b.c.off, b.e.b = slices.Grow(b.c.off, tasks), slices.Grow(b.e.b, size)
}

// Add appends a task. deps are ascending indexes, each lower than the task's.
// A chunk with other dependencies is rejected as malformed.
func (b *ChunkBuilder) Add(name string, policy uint32, deps []uint32, body []byte) {
	b.AddConditional(name, policy, deps, nil, body)
}

// AddConditional is Add with a condition for each dependency; empty if all are
// WhenCompleted.
func (b *ChunkBuilder) AddConditional(name string, policy uint32, deps []uint32, conditions []Condition, body []byte) {
	self := uint64(b.c.First) + uint64(len(b.c.off))
	b.c.off = append(b.c.off, uint32(len(b.e.b))) //nolint:gosec // a chunk is at most an entry
	b.e.u64(uint64(policy))
	b.c.mixedPolicies = b.c.mixedPolicies || len(b.c.off) > 1 && policy != b.policy
	b.policy = policy
	conditions = significant(conditions)
	n := uint64(len(deps))
	if conditions != nil {
		n |= withConditions
		b.c.conditions = true
		b.c.invalid = b.c.invalid || len(conditions) != len(deps)
	}
	b.e.u64(n)
	least := uint64(0)
	for _, dep := range deps {
		b.c.invalid = b.c.invalid || uint64(dep) >= self || uint64(dep) < least
		least = uint64(dep) + 1
		b.e.u64(uint64(uint32(self) - dep)) //nolint:gosec // the sum is checked below
	}
	b.e.conditions(conditions)
	b.c.invalid = b.c.invalid || self >= 1<<32-1
	b.c.edges += uint32(len(deps)) //nolint:gosec // bounded by the blob
	b.c.unnamed = b.c.unnamed || name == ""
	b.e.str(name)
	b.e.bytes(body)
}

// Len is the number of tasks added so far.
func (b *ChunkBuilder) Len() int { return len(b.c.off) }

// Size is the length of the blob so far, in bytes.
func (b *ChunkBuilder) Size() int { return len(b.e.b) }

// Chunk returns the chunk. The builder must not be used after that.
func (b *ChunkBuilder) Chunk() *Chunk {
	// A chunk lives as long as its job: unused memory is freed.
	b.c.blob, b.c.off = trim(b.e.b), trim(b.c.off)
	return &b.c
}

// trim returns a list without most of its unused capacity.
func trim[T any](list []T) []T {
	if cap(list)-len(list) > len(list)/4 {
		return append(make([]T, 0, len(list)), list...)
	}
	return list
}

// Len is the number of tasks.
func (c *Chunk) Len() int {
	if c.ofArray {
		return int(c.n)
	}
	return len(c.off)
}

// Size is the length of the encoded tasks in bytes.
func (c *Chunk) Size() int { return len(c.blob) }

// Sum continues a CRC-32C of the blobs of a job's chunks. It does not depend
// on how a job is divided into chunks.
func (c *Chunk) Sum(sum uint32) uint32 { return crc32.Update(sum, castagnoli, c.blob) }

// chunk codes a chunk. What it accepts, the accessors below read without
// further checks. Decoded, the chunk shares the input's memory unless clone
// is set: then it outlives the input.
func (c *coder) chunk(v **Chunk, clone bool) {
	if c.d != nil {
		*v = new(Chunk)
	}
	k := *v
	number(c, &k.First)
	c.bool(&k.ofArray)
	n := uint64(len(k.off))
	if !k.ofArray {
		number(c, &n)
	}
	c.bytes(&k.blob)
	if c.d == nil || c.d.err != nil {
		return
	}
	if clone {
		k.blob = bytes.Clone(k.blob)
	}
	var err error
	if k.ofArray {
		err = k.indexArray()
	} else {
		err = k.index(n)
	}
	if err != nil {
		c.fail(fmt.Errorf("chunk at task %d: %w", k.First, err))
	}
}

// index finds the n tasks in the blob and checks them.
func (c *Chunk) index(n uint64) error {
	if n > uint64(len(c.blob)/4) || uint64(c.First)+n > 1<<32-1 {
		return errTruncated
	}
	c.off = make([]uint32, n)
	in := decoder{b: c.blob}
	policy := uint32(0)
	for i := range c.off {
		c.off[i] = uint32(len(c.blob) - len(in.b)) //nolint:gosec // an entry is far below 4 GiB
		before := policy
		policy = in.u32() // checked against the header when the chunk is applied
		c.mixedPolicies = c.mixedPolicies || i > 0 && policy != before
		self := uint64(c.First) + uint64(i) //nolint:gosec // i counts from 0
		deps, conditions := in.dependencyCount()
		last := self + 1
		for range deps {
			dist := in.u64()
			if dist == 0 || dist >= last {
				in.fail(fmt.Errorf("task %d: dependencies must be lower than the task and ascend", self))
			}
			last = dist
		}
		if conditions {
			c.conditions = true
			for range deps {
				in.condition()
			}
		}
		c.edges += uint32(deps) //nolint:gosec // bounded by the blob
		c.unnamed = c.unnamed || len(in.bytes()) == 0
		in.bytes()
	}
	if in.err == nil && len(in.b) > 0 {
		in.fail(fmt.Errorf("%d bytes left over", len(in.b)))
	}
	return in.err
}
