package disk

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// sector is the unit that a device writes atomically, in bytes.
const sector = 512

// Loss counts what a power cut did to the changes that were not durable.
type Loss struct {
	Kept, Dropped, Torn int // writes and changes of length
	Names               int // dropped changes of names
}

// Cut is a power cut: each change that is not durable survives or is lost, chosen by
// random, and a write may survive in part. The disk then has what a machine would
// find after its restart.
func (d *Disk) Cut(random *rand.Rand) Loss {
	d.mu.Lock()
	defer d.mu.Unlock()
	var loss Loss
	for _, c := range d.names {
		if random.IntN(2) == 0 {
			d.commit(c)
		} else {
			loss.Names++
		}
	}
	d.names = nil
	// The probability of survival differs between cuts: all, few and none must
	// occur.
	keep := []int{0, 20, 50, 80, 100}[random.IntN(5)]
	for _, id := range slices.Sorted(maps.Keys(d.nodes)) {
		n := d.nodes[id]
		if n.folder {
			d.nodes[id] = n.settled(n.durableEntries, nil)
			continue
		}
		d.nodes[id] = n.settled(nil, n.survives(random, keep, &loss))
	}
	d.prune()
	for _, n := range d.nodes {
		for name, id := range n.entries {
			d.nodes[id].name = name
		}
	}
	return loss
}

func (n *node) survives(random *rand.Rand, keep int, loss *Loss) []byte {
	content := n.durable
	for _, w := range n.pending {
		switch roll := random.IntN(100); {
		case roll < keep:
			content = w.apply(content)
			loss.Kept++
		case roll%4 == 0 && w.data != nil:
			content = w.tear(random, content)
			loss.Torn++
		default:
			loss.Dropped++
		}
	}
	return content
}

// tear applies some sectors of a write: those up to one of them, or any.
func (w *write) tear(random *rand.Rand, content []byte) []byte {
	end := w.offset + int64(len(w.data))
	upTo := w.offset + random.Int64N(int64(len(w.data))+1)
	scattered := random.IntN(2) == 0
	for at := w.offset; at < end; {
		next := min((at/sector+1)*sector, end)
		if scattered && random.IntN(2) == 0 || !scattered && next <= upTo {
			content = put(content, at, w.data[at-w.offset:next-w.offset])
		}
		at = next
	}
	return content
}

// TearLast tears the last write to a file at or after an offset, synced or not: only
// some leading sectors arrived, at least one and not all, and the others are zeros.
// A disk that lies about a sync does this. It returns the offset where the zeros
// begin.
func (d *Disk) TearLast(id ID, behind int64, random *rand.Rand) (from int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, errno := d.file(id)
	if errno != 0 {
		return 0, errno
	}
	for _, w := range slices.Backward(n.recent) {
		end := min(w.offset+w.length, int64(len(n.live)))
		sectors := (end - w.offset + sector - 1) / sector
		if w.offset < behind || sectors < 2 {
			continue
		}
		from = w.offset + (1+random.Int64N(sectors-1))*sector
		clear(n.live[from:end])
		n.settle()
		return from, nil
	}
	return 0, errors.New("no write to tear")
}

// settle makes the current contents of a file durable.
func (n *node) settle() {
	n.durable, n.pending = slices.Clone(n.live), nil
}

// Flip flips one bit of a file, in its live and its durable contents.
func (d *Disk) Flip(id ID, bit int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, errno := d.file(id)
	if errno != 0 {
		return errno
	}
	if bit < 0 || bit/8 >= int64(len(n.live)) {
		return fmt.Errorf("a file of %d bytes has no bit %d", len(n.live), bit)
	}
	n.live[bit/8] ^= 1 << (bit % 8)
	if bit/8 < int64(len(n.durable)) {
		n.durable[bit/8] ^= 1 << (bit % 8)
	}
	return nil
}
