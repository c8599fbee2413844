package scheduler

// A positioned is an element of a heap. setPos tells the element its position in the heap, -1
// after it was removed.
type positioned[T any] interface {
	ordered[T]
	setPos(pos int)
}

// A heap is a binary min-heap whose elements know their positions, so that a
// changed element is found without a search. container/heap would box every
// element.
type heap[T positioned[T]] struct{ items []T }

func (h *heap[T]) push(x T) {
	h.items = append(h.items, x)
	h.up(len(h.items) - 1)
}

// remove removes and returns the element at a position.
func (h *heap[T]) remove(pos int) T {
	out, last := h.items[pos], len(h.items)-1
	h.items[pos] = h.items[last]
	clear(h.items[last:]) // don't keep it alive
	h.items = h.items[:last]
	if pos < last {
		h.fix(pos)
	}
	out.setPos(-1)
	return out
}

// init restores the order after the change of any elements.
func (h *heap[T]) init() {
	for pos := len(h.items)/2 - 1; pos >= 0; pos-- {
		h.down(pos)
	}
}

// fix restores the order after the element at a position has changed.
func (h *heap[T]) fix(pos int) {
	if !h.down(pos) {
		h.up(pos)
	}
}

func (h *heap[T]) up(pos int) {
	x := h.items[pos]
	for pos > 0 {
		parent := (pos - 1) / 2
		if !x.before(h.items[parent]) {
			break
		}
		h.items[pos] = h.items[parent]
		h.items[pos].setPos(pos)
		pos = parent
	}
	h.items[pos] = x
	x.setPos(pos)
}

// down reports whether the element moved.
func (h *heap[T]) down(pos int) bool {
	x, from := h.items[pos], pos
	for {
		child := 2*pos + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && h.items[right].before(h.items[child]) {
			child = right
		}
		if !h.items[child].before(x) {
			break
		}
		h.items[pos] = h.items[child]
		h.items[pos].setPos(pos)
		pos = child
	}
	h.items[pos] = x
	x.setPos(pos)
	return pos != from
}
