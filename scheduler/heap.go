package scheduler

// An ordered element of a heap: before is a strict total order, and moved is
// told where in the heap it now is, -1 once it has left.
type ordered[T any] interface {
	before(T) bool
	moved(at int)
}

// A heap is a binary min-heap whose elements know their places, so that one
// that changed is found at once. container/heap would box every element that
// goes in or out.
type heap[T ordered[T]] struct{ items []T }

func (h *heap[T]) push(x T) {
	h.items = append(h.items, x)
	x.moved(len(h.items) - 1)
	h.up(len(h.items) - 1)
}

// remove takes out the element at this place and returns it.
func (h *heap[T]) remove(at int) T {
	out, last := h.items[at], len(h.items)-1
	h.items[at] = h.items[last]
	var none T
	h.items[last] = none // not kept alive
	h.items = h.items[:last]
	if at < last {
		h.items[at].moved(at)
		h.fix(at)
	}
	out.moved(-1)
	return out
}

// fix restores the order after the element at this place has changed.
func (h *heap[T]) fix(at int) {
	if !h.down(at) {
		h.up(at)
	}
}

func (h *heap[T]) up(at int) {
	x := h.items[at]
	for at > 0 {
		parent := (at - 1) / 2
		if !x.before(h.items[parent]) {
			break
		}
		h.items[at] = h.items[parent]
		h.items[at].moved(at)
		at = parent
	}
	h.items[at] = x
	x.moved(at)
}

// down reports whether the element moved.
func (h *heap[T]) down(at int) bool {
	x, from := h.items[at], at
	for {
		child := 2*at + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && h.items[right].before(h.items[child]) {
			child = right
		}
		if !h.items[child].before(x) {
			break
		}
		h.items[at] = h.items[child]
		h.items[at].moved(at)
		at = child
	}
	h.items[at] = x
	x.moved(at)
	return at != from
}
