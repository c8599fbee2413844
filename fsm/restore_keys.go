package fsm

const (
	// keyBatches is how many batches of keys may wait for the keyLoader.
	keyBatches = 4
	// minKeySize is the length of the shortest key in a snapshot: a byte for each field, and
	// the digest.
	minKeySize = 5 + 16
)

// keyLoader builds the index of the idempotency keys of a snapshot on a goroutine of its own,
// while the frames that follow are decoded: with a key for each job of the last day, most of
// the time goes into memory for the index.
type keyLoader struct {
	batches chan []keySlot // of a frame each; closed by end
	free    chan []keySlot // memory for batches
	ended   bool
	done    chan struct{} // closed by the goroutine
	keys    keys          // belongs to the goroutine until then
}

// newKeyLoader starts the goroutine, which end ends.
func newKeyLoader(own *ownership) *keyLoader {
	l := &keyLoader{batches: make(chan []keySlot, keyBatches), free: make(chan []keySlot, keyBatches+2), done: make(chan struct{})}
	go l.run(own)
	return l
}

func (l *keyLoader) run(own *ownership) {
	defer close(l.done)
	for batch := range l.batches {
		l.keys.load(own, batch)
		clear(batch)
		l.free <- batch[:0] // there are never more than fit
	}
}

// load sets the keys of a frame, which are mostly all or none of those of a shard.
func (m *keys) load(own *ownership, batch []keySlot) {
	if len(batch) > 0 {
		m.shard(own, batch[0].hash).reserve(len(batch))
	}
	for i := range batch {
		m.setHashed(own, batch[i].hash, batch[i].name, batch[i].key)
	}
}

// empty returns memory for a batch.
func (l *keyLoader) empty(size int) []keySlot {
	select {
	case batch := <-l.free:
		return batch
	default:
		return make([]keySlot, 0, size)
	}
}

// end waits until the goroutine has all keys.
func (l *keyLoader) end() {
	if !l.ended {
		l.ended = true
		close(l.batches)
	}
	<-l.done
}

// loadKeys decodes the keys of a frame for the keyLoader.
func (f *frameReader) loadKeys(d *decoder) {
	c, n := coder{d: d}, d.count()
	batch := f.keyLoader.empty(min(n, len(d.b)/minKeySize))
	for range n {
		var s keySlot
		if s.key.fields(&c, &s.name); d.err != nil {
			return
		}
		s.hash = hashOf(s.name)
		batch = append(batch, s)
	}
	f.keyLoader.batches <- batch
}
