package index

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/dtask/dtask/fsm"
)

// segmentBits is how many low bits of a job ID are its number within the segment.
const segmentBits = 16

// A posting states that a job has a term. Its bytes are the segment (48 bits), the
// term, and the job's number within the segment.
type posting [postingSize]byte

const (
	postingSize = groupSize + 2
	groupSize   = 6 + 8 // segment and term
)

func newPosting(t Term, id fsm.JobID) (p posting) {
	n := uint64(id)
	binary.BigEndian.PutUint64(p[:8], n>>segmentBits<<16) // the high 48 bits; the term overwrites the last two bytes
	copy(p[6:], t[:])
	binary.BigEndian.PutUint16(p[groupSize:], uint16(n)) //nolint:gosec // the low 16 bits
	return p
}

func postingIn(group [groupSize]byte, number uint16) (p posting) {
	copy(p[:], group[:])
	binary.BigEndian.PutUint16(p[groupSize:], number)
	return p
}

func (p *posting) group() []byte  { return p[:groupSize] }
func (p *posting) number() uint16 { return binary.BigEndian.Uint16(p[groupSize:]) }

// sortPostings sorts postings by their bytes, in place. They arrive job by job,
// mostly ascending, and most terms are shared by many jobs. Therefore it sorts the
// groups, and the jobs of a group only if they are out of order.
func sortPostings(postings []posting) []posting {
	groups := make(map[[groupSize]byte][]uint16)
	for i := range postings {
		group := [groupSize]byte(postings[i].group())
		groups[group] = append(groups[group], postings[i].number())
	}
	ascending := slices.SortedFunc(maps.Keys(groups), func(a, b [groupSize]byte) int { return bytes.Compare(a[:], b[:]) })
	postings = postings[:0]
	for _, group := range ascending {
		numbers := groups[group]
		if !slices.IsSorted(numbers) {
			slices.Sort(numbers)
		}
		for _, n := range numbers {
			postings = append(postings, postingIn(group, n))
		}
	}
	return postings
}

// eachGroup calls do with the job numbers of each group of sorted postings.
func eachGroup(postings []posting, do func(group []byte, numbers []uint16) error) error {
	var numbers []uint16
	for len(postings) > 0 {
		group, n := postings[0].group(), 0
		for numbers = numbers[:0]; n < len(postings) && bytes.Equal(postings[n].group(), group); n++ {
			numbers = append(numbers, postings[n].number())
		}
		if err := do(group, numbers); err != nil {
			return err
		}
		postings = postings[n:]
	}
	return nil
}
