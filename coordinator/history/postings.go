package history

import (
	"bytes"
	"encoding/binary"
	"iter"
	"maps"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/fsm"
)

// A post says that a job has a word: the segment of the job (48 bits), the word, and the
// job's number within the segment.
type post [postSize]byte

const (
	postSize   = groupSize + 2
	groupSize  = 6 + 8 // segment and word
	mostInList = 512   // jobs of one list: 1 KiB, which is rewritten when one is added
)

func makePost(w word, id fsm.JobID) (p post) {
	n := uint64(id)
	binary.BigEndian.PutUint64(p[:8], n>>segmentBits<<16) // the high 48 bits; two bytes are written over
	copy(p[6:], w[:])
	binary.BigEndian.PutUint16(p[groupSize:], uint16(n)) //nolint:gosec // the low 16 bits
	return p
}

func postOf(group [groupSize]byte, low uint16) (p post) {
	copy(p[:], group[:])
	binary.BigEndian.PutUint16(p[groupSize:], low)
	return p
}

func (p *post) group() []byte { return p[:groupSize] }
func (p *post) low() uint16   { return binary.BigEndian.Uint16(p[groupSize:]) }

// sorted sorts posts by their bytes, in place. They come job by job, mostly ascending, and few
// words are those of many: so the groups are sorted, and the jobs of one only if they are not.
func sorted(posts []post) []post {
	groups := make(map[[groupSize]byte][]uint16)
	for i := range posts {
		group := [groupSize]byte(posts[i].group())
		groups[group] = append(groups[group], posts[i].low())
	}
	order := slices.SortedFunc(maps.Keys(groups), func(a, b [groupSize]byte) int { return bytes.Compare(a[:], b[:]) })
	posts = posts[:0]
	for _, group := range order {
		jobs := groups[group]
		if !slices.IsSorted(jobs) {
			slices.Sort(jobs)
		}
		for _, low := range jobs {
			posts = append(posts, postOf(group, low))
		}
	}
	return posts
}

// The bucket of the index holds, for each segment and word, lists of jobs: the key of a list
// is the post of its first job, the value the numbers of the others within the segment,
// ascending, two bytes each. The lists of a word do not overlap: all of the jobs of
// one come before those of the next.

// A list is the jobs of one word that are stored together.
type list struct {
	key []byte // as it is stored; nil: it is new
	ids []uint16
}

// readList reads a list. ok is false if key and value are none of a group.
func readList(group, key, value []byte) (l list, ok bool) {
	if len(key) != postSize || len(value)%2 != 0 || !bytes.Equal(key[:groupSize], group) {
		return list{}, false
	}
	l = list{key: key, ids: make([]uint16, 0, 1+len(value)/2)}
	l.ids = append(l.ids, binary.BigEndian.Uint16(key[groupSize:]))
	for ; len(value) > 0; value = value[2:] {
		l.ids = append(l.ids, binary.BigEndian.Uint16(value))
	}
	return l, true
}

// addPosts adds posts, which are sorted, to the index. Those that are there stay.
func addPosts(index *bbolt.Bucket, posts []post) error {
	return eachGroup(posts, func(first *post, ids []uint16) error {
		for len(ids) > 0 {
			old, end := listFor(index, first.group(), ids[0])
			n := below(ids, end)
			if err := old.store(index, first.group(), union(old.ids, ids[:n])); err != nil {
				return err
			}
			ids = ids[n:]
		}
		return nil
	})
}

// removePosts takes posts, which are sorted, out of the index. Those that are not there are
// no fault.
func removePosts(index *bbolt.Bucket, posts []post) error {
	return eachGroup(posts, func(first *post, ids []uint16) error {
		for len(ids) > 0 {
			old, end := listFor(index, first.group(), ids[0])
			n := below(ids, end)
			if old.key != nil {
				left := slices.DeleteFunc(slices.Clone(old.ids), func(id uint16) bool {
					_, gone := slices.BinarySearch(ids[:n], id)
					return gone
				})
				if err := old.store(index, first.group(), left); err != nil {
					return err
				}
			}
			ids = ids[n:]
		}
		return nil
	})
}

// entries goes over all keys and values of a bucket.
func entries(b *bbolt.Bucket) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		c := b.Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			if !yield(k, v) {
				return
			}
		}
	}
}

// eachGroup calls do with the jobs of each group, ascending.
func eachGroup(posts []post, do func(first *post, ids []uint16) error) error {
	var ids []uint16
	for len(posts) > 0 {
		first := &posts[0]
		n := 0
		for ids = ids[:0]; n < len(posts) && bytes.Equal(posts[n].group(), first.group()); n++ {
			ids = append(ids, posts[n].low())
		}
		if err := do(first, ids); err != nil {
			return err
		}
		posts = posts[n:]
	}
	return nil
}

const lastInSegment = 1<<segmentBits - 1

// listFor finds the list that a job belongs to, and the last job that does: the list that
// begins at or before it, or else the first of the group; a new one if there is
// none.
func listFor(index *bbolt.Bucket, group []byte, id uint16) (l list, end uint16) {
	c := index.Cursor()
	var want post
	copy(want[:], group)
	binary.BigEndian.PutUint16(want[groupSize:], id)
	next, value := c.Seek(want[:])
	var found bool
	switch {
	case bytes.Equal(next, want[:]):
		l, _ = readList(group, next, value)
		next, _ = c.Next()
	default:
		k, v := back(c, next, want[:])
		if l, found = readList(group, k, v); found {
			break
		}
		if l, found = readList(group, next, value); !found {
			return list{}, lastInSegment
		}
		c.Seek(next)
		next, _ = c.Next()
	}
	if len(next) == postSize && bytes.Equal(next[:groupSize], group) {
		return l, binary.BigEndian.Uint16(next[groupSize:]) - 1
	}
	return l, lastInSegment
}

// seekBack finds the last key that is not above one.
func seekBack(c *bbolt.Cursor, want []byte) (k, v []byte) {
	k, v = c.Seek(want)
	if bytes.Equal(k, want) {
		return k, v
	}
	return back(c, k, want)
}

// back goes from where Seek found a key above want, or nil, to the one before. Pages that
// have become empty in this transaction are passed over: bbolt's Prev gives nothing for
// one, and its Last does not end where all are.
func back(c *bbolt.Cursor, above, want []byte) (k, v []byte) {
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

// store puts jobs in the place of a list.
func (l list) store(index *bbolt.Bucket, group []byte, ids []uint16) error {
	if l.key != nil && (len(ids) == 0 || ids[0] != l.ids[0]) {
		if err := index.Delete(slices.Clone(l.key)); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(ids, mostInList) {
		key := binary.BigEndian.AppendUint16(slices.Clone(group), part[0])
		value := make([]byte, 0, 2*len(part)-2)
		for _, id := range part[1:] {
			value = binary.BigEndian.AppendUint16(value, id)
		}
		if err := index.Put(key, value); err != nil {
			return err
		}
	}
	return nil
}

// below is how many of the ids, ascending, are not above end; at least one.
func below(ids []uint16, end uint16) int {
	n, found := slices.BinarySearch(ids, end)
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
