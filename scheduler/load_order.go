package scheduler

// A load is what orders workers for placement.
type load struct {
	turn        uint64
	used, slots uint32
	id          WorkerID
	full        bool
}

func (w *worker) load() load { return load{w.turn, w.used, w.slots, w.id, w.full()} }

// before orders workers: those that are not full first, then by load, compared as fractions,
// then by turn. Both must have slots.
func (l *load) before(o *load) bool {
	if l.full != o.full {
		return o.full
	}
	a, b := uint64(l.used)*uint64(o.slots), uint64(o.used)*uint64(l.slots)
	if a != b {
		return a < b
	}
	if l.turn != o.turn {
		return l.turn < o.turn
	}
	return l.id < o.id
}

func (w *worker) before(o *worker) bool {
	a, b := w.load(), o.load()
	return a.before(&b)
}

// A loadOrder has workers, the least loaded first. It is a heap like turns: a comparison
// reads no worker. It is not a type of heap, whose comparisons are calls: with that, a task takes
// 525 ns instead of 258 (go test ./scheduler -run - -bench Next/plain).
type loadOrder struct{ items []candidate }

// A candidate is a worker in a loadOrder.
type candidate struct {
	*worker
	key load // that of the worker
}

func (h *loadOrder) push(w *worker) {
	h.items = append(h.items, candidate{w, w.load()})
	h.up(len(h.items) - 1)
}

// fix restores the order after a change of the worker at a position.
func (h *loadOrder) fix(pos int) {
	now := h.items[pos].load()
	lower := now.before(&h.items[pos].key)
	if h.items[pos].key = now; lower {
		h.up(pos)
	} else {
		h.down(pos)
	}
}

func (h *loadOrder) remove(pos int) {
	last := len(h.items) - 1
	h.items[pos].pos = -1
	moved := h.items[last]
	h.items[last] = candidate{} // don't keep it alive
	if h.items = h.items[:last]; pos == last {
		return
	}
	if h.items[pos] = moved; !h.down(pos) {
		h.up(pos)
	}
}

func (h *loadOrder) up(pos int) {
	x := h.items[pos]
	for pos > 0 {
		parent := (pos - 1) / heapWidth
		if !x.key.before(&h.items[parent].key) {
			break
		}
		h.put(pos, &h.items[parent])
		pos = parent
	}
	h.put(pos, &x)
}

// down reports whether the worker moved.
func (h *loadOrder) down(pos int) bool {
	x, from := h.items[pos], pos
	for {
		child := heapWidth*pos + 1
		if child >= len(h.items) {
			break
		}
		for next := child + 1; next < min(heapWidth*pos+1+heapWidth, len(h.items)); next++ {
			if h.items[next].key.before(&h.items[child].key) {
				child = next
			}
		}
		if !h.items[child].key.before(&x.key) {
			break
		}
		h.put(pos, &h.items[child])
		pos = child
	}
	h.put(pos, &x)
	return pos != from
}

func (h *loadOrder) put(pos int, x *candidate) {
	h.items[pos] = *x
	x.pos = pos
}
