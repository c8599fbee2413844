package fsm

import (
	"iter"
	"maps"
	"slices"
)

// keyTable is the map of idempotency keys. There is one for each job of the last minutes or day,
// at random places, so that what a look costs are the lines of memory that it touches: here
// mostly one, behind the head of a shard, where a map of Go has five. It can be forked as a cowMap,
// and has its shards.
type keyTable struct {
	own    *ownership
	shards *[shardCount]keyShard
	n      int
}

// keyShard has its keys at the first free slot from where their hash says, but no further than
// keyReach from there. The few that find none are in a map: whoever thinks up keys that
// collide only makes it a map.
type keyShard struct {
	own      *ownership
	slots    []keySlot // a power of two of them, or none
	n        int       // of them used
	overflow map[string]key
}

type keySlot struct {
	hash uint32
	used bool
	name string
	key  key
}

const (
	maxProbes = 16
	minSlots  = 8
)

func (m *keyTable) get(name string) (key, bool) {
	if m.shards == nil {
		return key{}, false
	}
	hash := hashOf(name)
	s := &m.shards[hash%shardCount]
	if at, ok := s.find(hash, name); ok {
		return s.slots[at].key, true
	}
	k, ok := s.overflow[name]
	return k, ok
}

// set stores a key, in the place of what is known by that name.
func (m *keyTable) set(own *ownership, name string, k key) {
	hash := hashOf(name)
	s := m.shard(own, hash)
	at, ok := s.find(hash, name)
	if ok {
		s.slots[at].key = k
		return
	}
	if _, ok := s.overflow[name]; ok {
		s.overflow[name] = k
		return
	}
	m.n++
	if 4*(s.n+1) > 3*len(s.slots) {
		s.grow()
	}
	s.put(keySlot{hash, true, name, k})
}

func (m *keyTable) delete(own *ownership, name string) {
	hash := hashOf(name)
	s := m.shard(own, hash)
	if at, ok := s.find(hash, name); ok {
		s.vacate(at)
		m.n--
		return
	}
	before := len(s.overflow)
	delete(s.overflow, name)
	m.n += len(s.overflow) - before
}

// scan iterates over one shard, in no order.
func (m *keyTable) scan(shard int) iter.Seq2[string, key] {
	return func(yield func(string, key) bool) {
		if m.shards == nil {
			return
		}
		s := &m.shards[shard]
		for i := range s.slots {
			if s.slots[i].used && !yield(s.slots[i].name, s.slots[i].key) {
				return
			}
		}
		// unordered: callers sort, or collect for an operation that the log orders
		for name, k := range s.overflow {
			if !yield(name, k) {
				return
			}
		}
	}
}

// shard returns the shard of a hash for changing.
func (m *keyTable) shard(own *ownership, hash uint32) *keyShard {
	if m.own != own {
		fresh := new([shardCount]keyShard)
		if m.shards != nil {
			*fresh = *m.shards
		}
		m.shards, m.own = fresh, own
	}
	s := &m.shards[hash%shardCount]
	if s.own != own {
		s.slots, s.overflow, s.own = slices.Clone(s.slots), maps.Clone(s.overflow), own
	}
	return s
}

// home is the slot where a hash belongs. What chose the shard is the same for all of them.
func (s *keyShard) home(hash uint32) int { return int(hash/shardCount) & (len(s.slots) - 1) }

// find finds a key in the slots. The first free slot ends the search.
func (s *keyShard) find(hash uint32, name string) (at int, ok bool) {
	if len(s.slots) == 0 {
		return 0, false
	}
	at = s.home(hash)
	for range maxProbes {
		slot := &s.slots[at]
		if !slot.used {
			return 0, false
		}
		if slot.hash == hash && slot.name == name {
			return at, true
		}
		at = (at + 1) & (len(s.slots) - 1)
	}
	return 0, false
}

// put places a key that is not there.
func (s *keyShard) put(k keySlot) {
	at := s.home(k.hash)
	for range maxProbes {
		if !s.slots[at].used {
			s.slots[at] = k
			s.n++
			return
		}
		at = (at + 1) & (len(s.slots) - 1)
	}
	if s.overflow == nil {
		s.overflow = make(map[string]key)
	}
	s.overflow[k.name] = k.key
}

// grow makes twice as many slots.
func (s *keyShard) grow() {
	old := s.slots
	s.slots, s.n = make([]keySlot, max(minSlots, 2*len(old))), 0
	for i := range old {
		if old[i].used {
			s.put(old[i])
		}
	}
}

// vacate frees a slot. Those behind it move up, so that none stands behind a free slot that lies
// between it and its home.
func (s *keyShard) vacate(free int) {
	last := len(s.slots) - 1
	for at := (free + 1) & last; s.slots[at].used; at = (at + 1) & last {
		if home := s.home(s.slots[at].hash); (at-home)&last >= (at-free)&last {
			s.slots[free] = s.slots[at]
			free = at
		}
	}
	s.slots[free] = keySlot{}
	s.n--
}
