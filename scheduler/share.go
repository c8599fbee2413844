package scheduler

import (
	"cmp"
	"math"
	"math/bits"
)

// A share is a part of the cluster: the fraction amount/total of its slots or of one
// resource. total is positive.
type share struct{ amount, total uint64 }

// compareShares compares a/x with b/y exactly, without a division.
func compareShares(a share, x uint32, b share, y uint32) int {
	left, right := a.amount, b.amount
	if a.total != b.total { // otherwise: shares of the same thing
		lhi, llo := bits.Mul64(left, b.total)
		rhi, rlo := bits.Mul64(right, a.total)
		if lhi|rhi != 0 {
			l, r := product(left, b.total, y), product(right, a.total, x)
			return cmp.Or(cmp.Compare(l[0], r[0]), cmp.Compare(l[1], r[1]), cmp.Compare(l[2], r[2]))
		}
		left, right = llo, rlo
	}
	lhi, llo := bits.Mul64(left, uint64(y))
	rhi, rlo := bits.Mul64(right, uint64(x))
	if lhi != rhi {
		return cmp.Compare(lhi, rhi)
	}
	return cmp.Compare(llo, rlo)
}

// product returns a*b*w in 192 bits, the highest first.
func product(a, b uint64, w uint32) [3]uint64 {
	hi, lo := bits.Mul64(a, b)
	carry, low := bits.Mul64(lo, uint64(w))
	top, middle := bits.Mul64(hi, uint64(w))
	middle, c := bits.Add64(middle, carry, 0)
	return [3]uint64{top + c, middle, low}
}

// A usage is what attempts hold: slots, one each, and resources.
type usage struct {
	slots uint64
	taken []uint64 // by resourceID; may be shorter than the number of resources
}

func (u *usage) add(c *class) {
	if u.slots++; len(c.needs) > 0 {
		u.addNeeds(c)
	}
}

func (u *usage) addNeeds(c *class) {
	for _, n := range c.needs {
		for int(n.resource) >= len(u.taken) {
			u.taken = append(u.taken, 0)
		}
		u.taken[n.resource] += uint64(n.amount) //nolint:gosec // positive
	}
}

func (u *usage) remove(c *class) {
	if u.slots--; len(c.needs) > 0 {
		u.removeNeeds(c)
	}
}

func (u *usage) removeNeeds(c *class) {
	for _, n := range c.needs {
		u.taken[n.resource] -= uint64(n.amount) //nolint:gosec // positive
	}
}

// set makes a usage equal to another one.
func (u *usage) set(to *usage) { u.slots, u.taken = to.slots, append(u.taken[:0], to.taken...) }

// of returns how much of a resource is held.
func (u *usage) of(r resourceID) uint64 {
	if int(r) >= len(u.taken) {
		return 0
	}
	return u.taken[r]
}

// A fleet is the capacity of all workers together, whether or not they accept tasks: a
// worker that drains does not change who is next.
type fleet struct {
	slots uint64
	total []wide // by resourceID
}

// dominant returns the largest share that a usage has of anything.
func (f *fleet) dominant(u *usage) share {
	best := share{u.slots, max(f.slots, 1)}
	for r, amount := range u.taken {
		if amount == 0 {
			continue
		}
		if s := (share{amount, f.of(r)}); compareShares(s, 1, best, 1) > 0 {
			best = s
		}
	}
	return best
}

func (f *fleet) of(r int) uint64 {
	if r >= len(f.total) {
		return 1
	}
	return max(f.total[r].clamped(), 1)
}

func (f *fleet) add(w *worker) {
	f.slots += uint64(w.slots)
	for r, amount := range w.total {
		for r >= len(f.total) {
			f.total = append(f.total, wide{})
		}
		f.total[r].add(uint64(amount)) //nolint:gosec // not negative
	}
}

func (f *fleet) remove(w *worker) {
	f.slots -= uint64(w.slots)
	for r, amount := range w.total {
		f.total[r].sub(uint64(amount)) //nolint:gosec // not negative
	}
}

// wide is a sum that may exceed 64 bits: each worker may have up to MaxAmount.
type wide struct{ hi, lo uint64 }

func (x *wide) add(n uint64) {
	var carry uint64
	x.lo, carry = bits.Add64(x.lo, n, 0)
	x.hi += carry
}

func (x *wide) sub(n uint64) {
	var borrow uint64
	x.lo, borrow = bits.Sub64(x.lo, n, 0)
	x.hi -= borrow
}

func (x *wide) clamped() uint64 {
	if x.hi > 0 {
		return math.MaxUint64
	}
	return x.lo
}
