package spec

import "slices"

// idSet holds the ids of a job's tasks, to find those that are there twice. The zero
// set is empty.
//
// Programs that make large jobs count: t1, t2, … t10, or step-0001, step-0002. While
// each id is longer than the one before, or as long and after it in the alphabet, none can be
// there already, and nothing need be looked up. From the first that is not so on
// there is a map.
type idSet struct {
	list  []placedID        // while they ascend
	known map[string]uint32 // afterwards
}

type placedID struct {
	id string
	at uint32
}

// expect empties the set and makes room for so many ids, if they are few: most jobs are small.
func (s *idSet) expect(n int) {
	const few = 64
	*s = idSet{list: slices.Grow(s.list[:0], min(n, few))}
}

// grow makes room for so many more.
func (s *idSet) grow(n int) {
	if s.known == nil {
		s.list = slices.Grow(s.list, n)
	}
}

// add adds the id of the task at an index. If it is known it stays as it was, and
// first is the index of its task.
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
