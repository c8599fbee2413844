package array

import dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"

// Items is how many items an array has, those of its further parts included.
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

// RangeItems is how many indexes a range has; 0 for one that is not well-formed.
func RangeItems(r *dtaskv1.ArrayRange) uint64 {
	if r.GetStep() == 0 || r.GetLast() < r.GetFirst() {
		return 0
	}
	return uint64((r.GetLast()-r.GetFirst())/r.GetStep()) + 1
}

// Chunk is how many items a task executes; at least 1.
func Chunk(a *dtaskv1.ArraySpec) uint64 { return uint64(max(a.GetChunk(), 1)) }

// Tasks is how many tasks a task of a job file becomes: 1 unless it is an array.
// A further part of an array counts none: its first part counted all.
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
