package array

import dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"

// Items returns the number of items of an array, including those of further
// parts.
func Items(a *dtaskv1.ArraySpec) uint64 {
	if len(a.GetRanges()) == 0 {
		return max(uint64(a.GetItemsTotal()), uint64(len(a.GetItems())))
	}
	n := uint64(0)
	for _, r := range a.GetRanges() {
		n += RangeItems(r)
	}
	return n
}

// RangeItems returns the number of indexes of a range; 0 for an invalid one.
func RangeItems(r *dtaskv1.ArrayRange) uint64 {
	if r.GetStep() == 0 || r.GetLast() < r.GetFirst() {
		return 0
	}
	return uint64((r.GetLast()-r.GetFirst())/r.GetStep()) + 1
}

// Chunk returns how many items a task executes; at least 1.
func Chunk(a *dtaskv1.ArraySpec) uint64 { return uint64(max(a.GetChunk(), 1)) }

// Tasks returns how many tasks a TaskSpec expands to: 1 unless it is an array.
// Further parts of an array return 0, since the first part counts all.
func Tasks(t *dtaskv1.TaskSpec) uint64 {
	a := t.GetArray()
	switch {
	case a == nil:
		return 1
	case a.GetPart() > 0:
		return 0
	}
	return (Items(a) + Chunk(a) - 1) / Chunk(a)
}
