package fsm

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// maxArrayTasks is the maximum number of tasks of an array. It belongs to the
// log's format: an array takes a few bytes there, however many tasks it has.
const maxArrayTasks = 1_000_000

// IndexRange is a run of indexes of an array: Count indexes First,
// First+Step, …, none above 2^32-1.
type IndexRange struct {
	First, Step uint32 // Step ≥ 1
	Count       uint32 // ≥ 1
}

func (r IndexRange) last() uint64 { return uint64(r.First) + uint64(r.Step)*uint64(r.Count-1) }

// Array is the record of an array: one template and its items. Each task
// executes Chunk items, the last one the remaining items.
type Array struct {
	Name   string
	Policy uint32
	// Deps are ascending indexes of tasks, each lower than that of the array's
	// first task. The first task of another array stands for all of that array.
	Deps []uint32
	// Conditions has one for each of Deps, or is empty if all are WhenCompleted.
	Conditions []Condition `json:",omitempty"`
	Body       []byte      // dtask.v1.TaskBody with expressions
	// Ranges are the indexes, ascending and disjoint. Without ranges, the
	// indexes are 0 to Items-1 and each has an item.
	Ranges      []IndexRange
	Items       uint32 // number of items; follows from Ranges if there are any
	Chunk       uint32 // ≥ 1
	MaxParallel uint32 // concurrent attempts; 0 = unlimited
	JSON        bool   // the payload of the body is JSON
}

// condition returns the condition of the k-th dependency.
func (a *Array) condition(k int) Condition {
	if len(a.Conditions) == 0 {
		return WhenCompleted
	}
	return a.Conditions[k]
}

// Tasks is the number of tasks of the array.
func (a *Array) Tasks() uint32 {
	return uint32((uint64(a.Items) + uint64(a.Chunk) - 1) / uint64(a.Chunk)) //nolint:gosec // ≤ Items
}

// Index returns the k-th index.
func (a *Array) Index(k uint32) uint32 {
	for _, r := range a.Ranges {
		if k < r.Count {
			return r.First + r.Step*k
		}
		k -= r.Count
	}
	return k
}

// find returns the position of an index.
func (a *Array) find(index uint32) (k uint32, ok bool) {
	if len(a.Ranges) == 0 {
		return index, index < a.Items
	}
	for _, r := range a.Ranges {
		if index >= r.First && uint64(index) <= r.last() && (index-r.First)%r.Step == 0 {
			return k + (index-r.First)/r.Step, true
		}
		k += r.Count
	}
	return 0, false
}

// of returns the items of the k-th task: from first up to, excluding, end.
func (a *Array) of(k uint32) (first, end uint32) {
	return k * a.Chunk, uint32(min(uint64(k+1)*uint64(a.Chunk), uint64(a.Items))) //nolint:gosec // ≤ Items
}

// taskName is the id of the k-th task: map[17], or map[10-19] if it executes
// several items.
func (a *Array) taskName(k uint32) string {
	first, end := a.of(k)
	b := append(append(make([]byte, 0, len(a.Name)+12), a.Name...), '[')
	b = strconv.AppendUint(b, uint64(a.Index(first)), 10)
	if a.Chunk > 1 {
		b = strconv.AppendUint(append(b, '-'), uint64(a.Index(end-1)), 10)
	}
	return string(append(b, ']'))
}

// findName is the inverse of taskName. It also accepts the index of any item
// of a task.
func (a *Array) findName(name string) (k uint32, ok bool) {
	rest, ok := strings.CutPrefix(name, a.Name+"[")
	if !ok {
		return 0, false
	}
	rest, ok = strings.CutSuffix(rest, "]")
	first, _, whole := strings.Cut(rest, "-")
	index, err := strconv.ParseUint(first, 10, 32)
	if !ok || err != nil {
		return 0, false
	}
	at, ok := a.find(uint32(index))
	if !ok {
		return 0, false
	}
	k = at / a.Chunk
	if got := a.taskName(k); got != name && (whole || strconv.FormatUint(index, 10) != first) {
		return 0, false
	}
	return k, true
}

// Covering returns the tasks, from the k-th up to, excluding, end, that
// execute items with the indexes of a name like run[0-3] or run[2]; none if k
// = end. ok is false if the name has another form or array.
func (a *Array) Covering(name string) (k, end uint32, ok bool) {
	rest, ok := strings.CutPrefix(name, a.Name+"[")
	if !ok {
		return 0, 0, false
	}
	rest, ok = strings.CutSuffix(rest, "]")
	from, to, whole := strings.Cut(rest, "-")
	if !whole {
		to = from
	}
	lo, err := strconv.ParseUint(from, 10, 32)
	hi, err2 := strconv.ParseUint(to, 10, 32)
	if !ok || err != nil || err2 != nil || lo > hi {
		return 0, 0, false
	}
	// The first item at or above lo, and the first above hi.
	first := sort.Search(int(a.Items), func(i int) bool { return uint64(a.Index(uint32(i))) >= lo }) //nolint:gosec // ≤ Items
	above := sort.Search(int(a.Items), func(i int) bool { return uint64(a.Index(uint32(i))) > hi })  //nolint:gosec // ≤ Items
	if first == above {
		return 0, 0, true
	}
	return uint32(first) / a.Chunk, uint32(above-1)/a.Chunk + 1, true //nolint:gosec // ≤ Items
}

var (
	errBadArray = errors.New("malformed array")
	errBadPart  = errors.New("items do not fit the array")
)

// check checks everything that the accessors rely on. first is the index of
// the first task.
func (a *Array) check(first uint32) error {
	items, next := uint64(0), uint64(0)
	for _, r := range a.Ranges {
		if r.Count == 0 || r.Step == 0 || uint64(r.First) < next || r.last() > 1<<32-1 {
			return errBadArray
		}
		items, next = items+uint64(r.Count), r.last()+1
	}
	if len(a.Ranges) > 0 && items != uint64(a.Items) {
		return errBadArray
	}
	if a.Items == 0 || a.Chunk == 0 || a.Name == "" || a.Tasks() > maxArrayTasks || uint64(first)+uint64(a.Tasks()) > 1<<32-1 {
		return errBadArray
	}
	if n := len(a.Conditions); n > 0 && n != len(a.Deps) {
		return errBadArray
	}
	for i, dep := range a.Deps {
		if dep >= first || i > 0 && dep <= a.Deps[i-1] {
			return fmt.Errorf("array %q: dependencies must be lower than the array and ascend", a.Name)
		}
	}
	return nil
}

// NewArrayChunk returns a chunk of an array, with the index of its first
// task. It has the whole array if that has ranges, else the first of its
// items, as encoded JSON. All parts but the last have a multiple of Chunk
// items.
func NewArrayChunk(first uint32, a Array, items [][]byte) *Chunk {
	var e encoder
	e.u64(0)
	e.u64(uint64(a.Policy))
	conditions, n := significant(a.Conditions), uint64(len(a.Deps))
	if conditions != nil {
		n |= withConditions
	}
	e.u64(n)
	for _, dep := range a.Deps {
		e.u64(uint64(first - dep))
	}
	e.conditions(conditions)
	e.str(a.Name)
	e.bytes(a.Body)
	e.u64(uint64(a.Chunk))
	e.u64(uint64(a.MaxParallel))
	e.bool(a.JSON)
	e.u64(uint64(len(a.Ranges)))
	for _, r := range a.Ranges {
		e.u64(uint64(r.First))
		e.u64(uint64(r.Step))
		e.u64(uint64(r.Count))
	}
	if len(a.Ranges) == 0 {
		e.u64(uint64(a.Items))
	}
	return arrayChunk(first, e, items)
}

// NewItemsChunk returns a chunk with the next items of the array of the
// previous chunk. part counts these chunks from 1. chunk is the array's
// Chunk.
func NewItemsChunk(first, part, chunk uint32, items [][]byte) *Chunk {
	var e encoder
	e.u64(uint64(part))
	e.u64(uint64(chunk))
	return arrayChunk(first, e, items)
}

func arrayChunk(first uint32, e encoder, items [][]byte) *Chunk {
	e.u64(uint64(len(items)))
	for _, it := range items {
		e.bytes(it)
	}
	c := &Chunk{First: first, blob: e.b, ofArray: true}
	c.invalid = c.indexArray() != nil
	return c
}

// IsArray reports whether the chunk is an array or a part of one.
func (c *Chunk) IsArray() bool { return c.ofArray }

// indexArray decodes a part of an array and checks it.
func (c *Chunk) indexArray() error {
	d := decoder{b: c.blob}
	c.part = d.u32()
	var size uint32
	if c.part == 0 {
		a := d.arrayRecord(c.First)
		if d.err != nil {
			return d.err
		}
		c.array, c.edges, size = a, uint32(len(a.Deps)), a.Chunk //nolint:gosec // bounded by the blob
		c.conditions = significant(a.Conditions) != nil
	} else {
		size = d.u32()
	}
	n := d.count()
	c.off = make([]uint32, n)
	for i := range c.off {
		c.off[i] = uint32(len(c.blob) - len(d.b)) //nolint:gosec // an entry is far below 4 GiB
		d.bytes()
	}
	switch {
	case d.err != nil:
		return d.err
	case len(d.b) > 0:
		return errTruncated
	case size == 0:
		return errBadPart
	}
	c.n = uint32((uint64(n) + uint64(size) - 1) / uint64(size)) //nolint:gosec // ≤ n
	if c.array != nil && len(c.array.Ranges) > 0 {
		if n > 0 {
			return errBadPart
		}
		c.n = c.array.Tasks()
	}
	if c.n == 0 || c.array != nil && c.n > c.array.Tasks() || uint64(c.First)+uint64(c.n) > 1<<32-1 {
		return errBadPart
	}
	c.size = size
	return nil
}

func (d *decoder) arrayRecord(first uint32) *Array {
	a := &Array{Policy: d.u32()}
	n, conditions := d.dependencyCount()
	for range n {
		dist := d.u64()
		if dist == 0 || dist > uint64(first) {
			d.fail(errBadArray)
			return a
		}
		a.Deps = append(a.Deps, first-uint32(dist)) //nolint:gosec // checked
	}
	for conditions && len(a.Conditions) < n {
		a.Conditions = append(a.Conditions, d.condition())
	}
	a.Name, a.Body = d.str(), d.bytes()
	a.Chunk, a.MaxParallel, a.JSON = d.u32(), d.u32(), d.bool()
	for range d.count() {
		r := IndexRange{First: d.u32(), Step: d.u32(), Count: d.u32()}
		if uint64(a.Items)+uint64(r.Count) > 1<<32-1 {
			d.fail(errBadArray)
			return a
		}
		a.Ranges = append(a.Ranges, r)
		a.Items += r.Count
	}
	if len(a.Ranges) == 0 {
		a.Items = d.u32()
	}
	if d.err == nil {
		if err := a.check(first); err != nil {
			d.fail(err)
		}
	}
	return a
}

// item returns an encoded item of a part.
func (c *Chunk) item(i uint32) []byte {
	v, _ := lengthPrefixed(c.blob[c.off[i]:])
	return v
}
