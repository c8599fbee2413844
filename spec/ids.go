package spec

import "slices"

// idSet finds duplicate task IDs. The zero set is empty.
//
// Programs that create large jobs count: t1, t2, … t10, or step-0001,
// step-0002. As long as each ID is longer than the previous one, or as long
// and greater, it can't be a duplicate and needs no lookup. The first ID out
// of this order switches to a map.
type idSet struct {
	list  []placedID        // while IDs ascend
	known map[string]uint32 // afterwards
}

type placedID struct {
	id string
	at uint32
}

// expect empties the set and reserves memory for n IDs, if they are few: most
// jobs are small.
func (s *idSet) expect(n int) {
	const few = 64
	*s = idSet{list: slices.Grow(s.list[:0], min(n, few))}
}

// grow reserves memory for n more IDs.
func (s *idSet) grow(n int) {
	if s.known == nil {
		s.list = slices.Grow(s.list, n)
	}
}

// add adds the ID of a task. If it is known, the set doesn't change, and first
// is the index of the task that has it.
func (s *idSet) add(id string, at uint32) (first uint32, known bool) {
	if s.known == nil {
		if n := len(s.list); n == 0 || s.list[n-1].below(id) {
			s.list = append(s.list, placedID{id, at})
			return 0, false
		}
		s.known = make(map[string]uint32, 2*len(s.list))
		for _, p := range s.list {
			s.known[p.id] = p.at
		}
		s.list = nil
	}
	if first, known = s.known[id]; !known {
		s.known[id] = at
	}
	return first, known
}

func (p placedID) below(id string) bool {
	return len(p.id) < len(id) || len(p.id) == len(id) && p.id < id
}
