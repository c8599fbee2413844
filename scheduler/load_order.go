package scheduler

// A load is what orders workers for placement. It consists of whole words, which the compiler copies
// in registers: reading a word that was just written in parts stalls the processor.
type load struct {
	turn uint64
	part uint64 // the slots that are used (high 32 bits) of all its slots
	last uint64 // the id, plus fullLoad if the worker is full
}

const fullLoad = 1 << 32

func (w *worker) load() load {
	last := uint64(w.id)
	if w.full() {
		last |= fullLoad
	}
	return load{w.turn, uint64(w.used)<<32 | uint64(w.slots), last}
}

func (l *load) full() bool { return l.last >= fullLoad }

// before orders workers: those that are not full first, then by load, compared as fractions,
// then by turn. Both must have slots.
func (l *load) before(o *load) bool {
	if full := o.full(); l.full() != full {
		return full
	}
	const slots = 1<<32 - 1
	a, b := (l.part>>32)*(o.part&slots), (o.part>>32)*(l.part&slots)
	if a != b {
		return a < b
	}
	if l.turn != o.turn {
		return l.turn < o.turn
	}
	return l.last < o.last
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
	if pos == 0 || !h.items[pos].key.before(&h.items[(pos-1)/heapWidth].key) {
		h.items[pos].pos = pos
		return
	}
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
