package fsm

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
)

// encodedKeys are keys in the frames of the snapshot that they were read from. A state that
// is only read to be written again, as one that is restored from a backup, doesn't look them
// up: tables would take several times as long as all else, and much more memory. A change
// makes tables of them. Immutable after they were read, so that forks share them.
type encodedKeys struct {
	frames []encodedFrame
	last   keyOrder // of the last key
}

// encodedFrame is a frame and its first key.
type encodedFrame struct {
	first    keyOrder
	contents []byte
}

// keyOrder is where a snapshot has a key: by shard, then by name.
type keyOrder struct {
	shard uint32
	name  []byte
}

func (o keyOrder) compare(other keyOrder) int {
	return cmp.Or(cmp.Compare(o.shard, other.shard), bytes.Compare(o.name, other.name))
}

func orderOf(name []byte) keyOrder { return keyOrder{hashOf(name) % shardCount, name} }

// readEncoded reads a frame of keys and keeps it as it is. It returns false if a key is not
// behind the one before it, so that it could be a duplicate.
func (e *encodedKeys) readEncoded(d *decoder) (n int, ordered bool) {
	frame := encodedFrame{contents: d.b}
	for name := range frameKeyList(d, &n) {
		at := orderOf(name)
		if len(e.frames)+n > 1 && e.last.compare(at) >= 0 {
			return 0, false
		}
		if n == 1 {
			frame.first = at
		}
		e.last = at
	}
	if n > 0 {
		e.frames = append(e.frames, frame)
	}
	return n, true
}

// frameKeyList iterates over the keys of a frame, and counts them. The names share the memory
// of the frame. d has the error.
func frameKeyList(d *decoder, n *int) iter.Seq2[[]byte, *key] {
	return func(yield func([]byte, *key) bool) {
		c := coder{d: d}
		for range d.count() {
			var k key
			name := d.bytes()
			if k.meaning(&c); d.err != nil {
				return
			}
			if *n++; !yield(name, &k) {
				return
			}
		}
	}
}

// all iterates over all keys, in order.
func (e *encodedKeys) all() iter.Seq2[[]byte, *key] {
	return func(yield func([]byte, *key) bool) {
		for i := range e.frames {
			n := 0
			for name, k := range frameKeyList(&decoder{b: e.frames[i].contents}, &n) {
				if !yield(name, k) {
					return
				}
			}
		}
	}
}

// scan iterates over the keys of one shard.
func (e *encodedKeys) scan(shard int, yield func(string, key) bool) {
	for name, k := range e.all() {
		if orderOf(name).shard == uint32(shard) && !yield(string(name), *k) { //nolint:gosec // < shardCount
			return
		}
	}
}

// get reads a frame, which takes longer than a table by far.
func (e *encodedKeys) get(name string) (key, bool) {
	at := orderOf([]byte(name))
	i, found := slices.BinarySearchFunc(e.frames, at, func(f encodedFrame, at keyOrder) int { return f.first.compare(at) })
	if !found {
		i-- // the last frame that begins before it
	}
	if i < 0 {
		return key{}, false
	}
	n := 0
	for other, k := range frameKeyList(&decoder{b: e.frames[i].contents}, &n) {
		if string(other) == name {
			return *k, true
		}
	}
	return key{}, false
}

// decode makes tables of encoded keys.
func (m *keys) decode(own *ownership) {
	encoded := m.encoded
	m.encoded, m.n = nil, 0
	for name, k := range encoded.all() {
		m.set(own, string(name), *k)
	}
}

// encodedKeys reads a frame of keys of a state that is read to be written again.
func (f *frameReader) encodedKeys(d *decoder) {
	s := f.s
	if s.keys.encoded == nil {
		if s.keys.n > 0 { // the order of a frame before was another one
			f.decodeKeys(d)
			return
		}
		s.keys.encoded = new(encodedKeys)
	}
	whole := *d
	n, ordered := s.keys.encoded.readEncoded(d)
	if s.keys.n += n; ordered {
		return
	}
	s.keys.decode(s.own)
	*d = whole
	f.decodeKeys(d)
}
