package scheduler

// heapWidth is the number of children of each element of turns and of a loadOrder. With 4, which
// is usual for heaps that are larger than the caches, a task takes 295 ns instead of 258: go
// test ./scheduler -run - -bench Next/plain -count 3, median, on one core of an AMD EPYC.
const heapWidth = 2

// A turns orders queues, or the owners of a queue, by their keys: it is a heap whose elements
// have their keys beside them. With 100 queues of 100 owners, most of a comparison's time is
// the wait for memory: with the keys in the queues and owners, each comparison would read
// another object.
type turns[T ordered[T]] struct{ items []turn[T] }

// A turn is an element of turns.
type turn[T ordered[T]] struct {
	key orderKey
	of  T
	pos *int32 // where of has its position; -1 after it was removed
}

// An ordered is an element of turns or a heap. before is a strict total order; in turns, it is
// that of elements with equal keys.
type ordered[T any] interface{ before(T) bool }

// before orders the elements.
func (t *turn[T]) before(o *turn[T]) bool {
	if c := t.key.compare(&o.key); c != 0 {
		return c < 0
	}
	return t.of.before(o.of)
}

func (h *turns[T]) push(key orderKey, of T, pos *int32) {
	h.items = append(h.items, turn[T]{key, of, pos})
	h.up(len(h.items) - 1)
}

// remove removes the element at a position.
func (h *turns[T]) remove(at int32) {
	pos, last := int(at), len(h.items)-1
	*h.items[pos].pos = -1
	moved := h.items[last]
	h.items[last] = turn[T]{} // don't keep it alive
	if h.items = h.items[:last]; pos == last {
		return
	}
	h.items[pos] = moved
	h.fix(at)
}

// fix restores the order after the element at a position has changed.
func (h *turns[T]) fix(at int32) {
	if !h.down(int(at)) {
		h.up(int(at))
	}
}

// raise sets the key of the first element, which is not below the former one.
func (h *turns[T]) raise(key orderKey) {
	h.items[0].key = key
	h.down(0)
}

// lower sets the key of the element at a position, unless it is above the present one.
func (h *turns[T]) lower(at int32, key *orderKey) {
	if t := &h.items[at]; key.before(&t.key) {
		t.key = *key
		h.up(int(at))
	}
}

// init restores the order after the change of any keys.
func (h *turns[T]) init() {
	for pos := len(h.items)/heapWidth + 1; pos >= 0; pos-- {
		if pos < len(h.items) {
			h.down(pos)
		}
	}
}

func (h *turns[T]) up(pos int) {
	x := h.items[pos]
	for pos > 0 {
		parent := (pos - 1) / heapWidth
		if !x.before(&h.items[parent]) {
			break
		}
		h.put(pos, h.items[parent])
		pos = parent
	}
	h.put(pos, x)
}

// down reports whether the element moved.
func (h *turns[T]) down(pos int) bool {
	x, from := h.items[pos], pos
	for {
		child := heapWidth*pos + 1
		if child >= len(h.items) {
			break
		}
		for next := child + 1; next < min(heapWidth*pos+1+heapWidth, len(h.items)); next++ {
			if h.items[next].before(&h.items[child]) {
				child = next
			}
		}
		if !h.items[child].before(&x) {
			break
		}
		h.put(pos, h.items[child])
		pos = child
	}
	h.put(pos, x)
	return pos != from
}

func (h *turns[T]) put(pos int, x turn[T]) {
	h.items[pos] = x
	*x.pos = int32(pos) //nolint:gosec // G115: queues and owners are far fewer
}
