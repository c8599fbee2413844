package disk

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// sector is what a device writes whole or not at all.
const sector = 512

// Loss is what a power cut did to the changes that were not durable.
type Loss struct {
	Kept, Dropped, Torn int // writes and changes of length
	Names               int // changes of names that were dropped
}

// Cut is a power cut: of what is not durable each change survives or not, as
// random decides, and a write may survive in part. The disk then holds what a
// machine would find when it comes back.
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
	// How likely a change is to survive differs from cut to cut: all, few and
	// none must come up.
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

// tear applies some sectors of a write: those up to one, or any.
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

// TearLast tears the last write to a file that lay at or behind an offset, synced
// or not: of its sectors only some in front arrived, at least one and not all, and
// where the others should be are zeros. So does a disk that lied about a sync. It
// returns where the zeros begin.
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
	return 0, errors.New("there was no write that could be torn")
}

// settle makes all of a file durable as it is.
func (n *node) settle() {
	n.durable, n.pending = slices.Clone(n.live), nil
}

// Flip flips one bit of a file, durable and live.
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
