package index

import (
	"bytes"
	"encoding/binary"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/history/format"
)

// The bucket of postings holds the jobs of each group in lists. The key of a list is
// the posting of its first job, the value the numbers of the others, ascending, two
// bytes each. Invariant: lists of a group don't overlap.

// maxList bounds the jobs of a list: 1 KiB, which is rewritten for each job that
// joins it.
const maxList = 512

const lastInSegment = 1<<segmentBits - 1

// A list holds jobs of one group that are stored together.
type list struct {
	key     []byte // as stored; nil: it is new
	numbers []uint16
}

// readList reads a list; ok is false if it does not belong to the group.
func readList(group, key, value []byte) (l list, ok bool) {
	if len(key) != postingSize || len(value)%2 != 0 || !bytes.Equal(key[:groupSize], group) {
		return list{}, false
	}
	l = list{key: key, numbers: make([]uint16, 0, 1+len(value)/2)}
	l.numbers = append(l.numbers, binary.BigEndian.Uint16(key[groupSize:]))
	for ; len(value) > 0; value = value[2:] {
		l.numbers = append(l.numbers, binary.BigEndian.Uint16(value))
	}
	return l, true
}

// addPostings adds sorted postings. Those that are stored already stay.
func (x Index) addPostings(postings []posting) error {
	return x.change(postings, func(l list, numbers []uint16) []uint16 { return union(l.numbers, numbers) })
}

// removePostings removes sorted postings and ignores those that are not stored.
func (x Index) removePostings(postings []posting) error {
	return x.change(postings, func(l list, numbers []uint16) []uint16 {
		return slices.DeleteFunc(slices.Clone(l.numbers), func(n uint16) bool {
			_, removed := slices.BinarySearch(numbers, n)
			return removed
		})
	})
}

// change replaces each list that sorted postings fall into by what f makes of it.
func (x Index) change(postings []posting, f func(l list, numbers []uint16) []uint16) error {
	return eachGroup(postings, func(group []byte, numbers []uint16) error {
		for len(numbers) > 0 {
			l, end := x.listFor(group, numbers[0])
			n := countUpTo(numbers, end)
			if err := l.store(x.postings, group, f(l, numbers[:n])); err != nil {
				return err
			}
			numbers = numbers[n:]
		}
		return nil
	})
}

// listFor finds the list that a job belongs to and the last job that belongs to it:
// the list that starts at or before the job, else the first of the group, else a
// new one.
func (x Index) listFor(group []byte, number uint16) (l list, end uint16) {
	c := x.postings.Cursor()
	want := postingIn([groupSize]byte(group), number)
	next, value := c.Seek(want[:])
	var found bool
	switch {
	case bytes.Equal(next, want[:]):
		l, _ = readList(group, next, value)
		next, _ = c.Next()
	default:
		k, v := prevOf(c, next, want[:])
		if l, found = readList(group, k, v); found {
			break
		}
		if l, found = readList(group, next, value); !found {
			return list{}, lastInSegment
		}
		c.Seek(next)
		next, _ = c.Next()
	}
	if len(next) == postingSize && bytes.Equal(next[:groupSize], group) {
		return l, binary.BigEndian.Uint16(next[groupSize:]) - 1
	}
	return l, lastInSegment
}

// seekLast finds the last key that is not above one.
func seekLast(c *bbolt.Cursor, want []byte) (k, v []byte) {
	k, v = c.Seek(want)
	if bytes.Equal(k, want) {
		return k, v
	}
	return prevOf(c, k, want)
}

// prevOf moves from above, the key above want that Seek returned (or nil), to the key
// before it. It skips pages that became empty in this transaction: bbolt's Prev
// returns nil for one, and its Last does not terminate if all are empty.
func prevOf(c *bbolt.Cursor, above, want []byte) (k, v []byte) {
	if above != nil {
		if k, v = c.Prev(); k != nil {
			return k, v
		}
	}
	if first, _ := c.Bucket().Cursor().First(); first == nil || bytes.Compare(first, want) > 0 {
		return nil, nil
	}
	if above == nil {
		return c.Last()
	}
	for k == nil {
		k, v = c.Prev()
	}
	return k, v
}

// store replaces a list by one or more lists of these numbers.
func (l list) store(postings *bbolt.Bucket, group []byte, numbers []uint16) error {
	if l.key != nil && (len(numbers) == 0 || numbers[0] != l.numbers[0]) {
		if err := postings.Delete(slices.Clone(l.key)); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(numbers, maxList) {
		key := binary.BigEndian.AppendUint16(slices.Clone(group), part[0])
		value := make([]byte, 0, 2*len(part)-2)
		for _, n := range part[1:] {
			value = binary.BigEndian.AppendUint16(value, n)
		}
		if err := postings.Put(key, value); err != nil {
			return err
		}
	}
	return nil
}

// verifyPostings checks that the index has all postings of a job.
func (x Index) verifyPostings(e Entry) error {
	c := x.postings.Cursor()
	for _, t := range e.Terms {
		p := newPosting(t, e.Job)
		k, v := seekLast(c, p[:])
		l, ok := readList(p.group(), k, v)
		if ok && !slices.IsSorted(l.numbers) {
			return format.Damaged("the index list at key %x is out of order", k)
		}
		if _, found := slices.BinarySearch(l.numbers, p.number()); !found {
			return format.Damaged("job %d is not in the index", e.Job)
		}
	}
	return nil
}

// countUpTo counts the ascending numbers that are not above end; at least 1.
func countUpTo(numbers []uint16, end uint16) int {
	n, found := slices.BinarySearch(numbers, end)
	if found {
		n++
	}
	return max(n, 1)
}

// union merges two ascending lists.
func union(a, b []uint16) []uint16 {
	out := make([]uint16, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			out, a = append(out, a[0]), a[1:]
		case a[0] > b[0]:
			out, b = append(out, b[0]), b[1:]
		default:
			out, a, b = append(out, a[0]), a[1:], b[1:]
		}
	}
	return append(append(out, a...), b...)
}
