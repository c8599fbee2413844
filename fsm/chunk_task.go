package fsm

import "encoding/binary"

// task is one task of a chunk. It shares the chunk's blob.
type task struct {
	policy uint32
	self   uint32 // its index; in an array, that of the first task
	deps   edges  // not in an array
	ndeps  int
	name   []byte
	body   []byte
	array  *Array // its array; then name is the array's
}

// at reads task i of the chunk.
func (c *Chunk) at(i uint32) task {
	policy, deps := c.edgesOf(i)
	t := task{policy: policy, self: deps.self, ndeps: deps.n, deps: deps}
	var b []byte
	t.name, b = lengthPrefixed(deps.after())
	t.body, _ = lengthPrefixed(b)
	return t
}

// edgesOf decodes the policy and the dependencies of task i of the chunk: all
// that is needed of each task while a large job is added.
func (c *Chunk) edgesOf(i uint32) (policy uint32, deps edges) {
	b := c.blob[c.off[i]:]
	p, w := binary.Uvarint(b)
	n, v := binary.Uvarint(b[w:])
	deps = edges{self: c.First + i, n: int(n &^ withConditions), b: b[w+v:], conditions: n&withConditions != 0} //nolint:gosec // checked by index
	return uint32(p), deps                                                                                      //nolint:gosec // checked by index
}

// edges are the dependencies of a task as distances, still encoded.
type edges struct {
	self       uint32
	n          int
	b          []byte
	conditions bool // they follow the distances
}

// each calls f with the indexes of the dependencies, ascending, and their
// conditions.
func (e edges) each(f func(dep uint32, c Condition)) {
	b, conditions := e.b, e.b
	if e.conditions {
		conditions = skipVarints(conditions, e.n)
	}
	for range e.n {
		dist, n := binary.Uvarint(b)
		b = b[n:]
		c := uint64(WhenCompleted)
		if e.conditions {
			c, n = binary.Uvarint(conditions)
			conditions = conditions[n:]
		}
		f(e.self-uint32(dist), Condition(c)) //nolint:gosec // checked by index
	}
}

// after returns what follows the dependencies of the task.
func (e edges) after() []byte {
	n := e.n
	if e.conditions {
		n *= 2
	}
	return skipVarints(e.b, n)
}

func skipVarints(b []byte, n int) []byte {
	for range n {
		_, w := binary.Uvarint(b)
		b = b[w:]
	}
	return b
}

// policy decodes the policy of task i of the chunk.
func (c *Chunk) policy(i uint32) uint32 {
	policy, _ := binary.Uvarint(c.blob[c.off[i]:])
	return uint32(policy) //nolint:gosec // checked by index
}

// ofArray returns a task of an array whose first task has an index.
func ofArray(a *Array, first uint32) task {
	return task{policy: a.Policy, self: first, ndeps: len(a.Deps), body: a.Body, array: a}
}

// eachDep calls f with the indexes of a task's dependencies, ascending, and
// their conditions. The first task of an array stands for all of it.
func (t task) eachDep(f func(dep uint32, c Condition)) {
	if t.array == nil {
		t.deps.each(f)
		return
	}
	for k, dep := range t.array.Deps {
		f(dep, t.array.condition(k))
	}
}

// conditions returns the conditions of the task's dependencies; nil if all are
// WhenCompleted.
func (t task) conditions() []Condition {
	if t.array == nil && !t.deps.conditions {
		return nil
	}
	list := make([]Condition, 0, t.ndeps)
	t.eachDep(func(_ uint32, c Condition) { list = append(list, c) })
	return significant(list)
}

func lengthPrefixed(b []byte) (value, rest []byte) {
	n, w := binary.Uvarint(b)
	end := w + int(n) //nolint:gosec // checked by index
	return b[w:end:end], b[end:]
}

// withConditions is added to the number of dependencies of a task, or of an
// array, if not all of their conditions are WhenCompleted.
const withConditions = 1 << 24

// conditions appends the conditions of the dependencies; nothing if all
// are WhenCompleted.
func (e *encoder) conditions(list []Condition) {
	for _, c := range list {
		e.u64(uint64(c))
	}
}

// significant returns the conditions of dependencies, or nil if all are
// WhenCompleted.
func significant(list []Condition) []Condition {
	for _, c := range list {
		if c != WhenCompleted {
			return list
		}
	}
	return nil
}

// dependencyCount reads the number of dependencies of a task, and whether
// their conditions follow.
func (d *decoder) dependencyCount() (n int, conditions bool) {
	v := d.u64()
	conditions = v&withConditions != 0
	if v &^= withConditions; v > uint64(len(d.b)) {
		d.fail(errTruncated)
		return 0, false
	}
	return int(v), conditions //nolint:gosec // checked
}

// condition reads the condition of a dependency.
func (d *decoder) condition() Condition {
	c := d.u64()
	if c >= uint64(numConditions) {
		d.fail(&UnknownError{What: "condition of a dependency"})
		return WhenCompleted
	}
	return Condition(c)
}
