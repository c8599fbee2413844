package fsm

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// key is the meaning of an idempotency key.
type key struct {
	job     JobID
	expires int64 // ms
	// version is the job's that the request with this key made: 0 while it is
	// being uploaded, submittedVersion, or that of a change.
	version uint32
	purged  uint32 // dead letters that the request removed
	digest  [16]byte
}

// submittedVersion is the version of a job that was not changed.
const submittedVersion = 1

// sealed reports whether the request with the key is complete. An upload in
// progress is not.
func (k *key) sealed() bool { return k.version > 0 }

// keys is the map of idempotency keys. It has a key for each job of the
// last minutes or day, at random positions, so that the cost of a lookup is
// the cache lines that it touches: here usually one after the head of a
// shard, where a Go map touches five. It is forked like a cowMap and has the
// same shards.
type keys struct {
	own    *ownership
	shards *[shardCount]keyShard
	n      int

	encoded *encodedKeys // instead of shards; nil: none
}

// keyShard is an open-addressing table: a key is in the first free slot after
// the one of its hash, at most maxProbes further. The few keys without such a
// slot are in a map, so that keys chosen to collide are no slower than in a
// map.
type keyShard struct {
	own      *ownership
	slots    []keySlot // a power of two, or empty
	n        int       // used slots
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

func (m *keys) get(name string) (key, bool) {
	if m.shards == nil {
		if m.encoded != nil {
			return m.encoded.get(name)
		}
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

// set stores or replaces a key.
func (m *keys) set(own *ownership, name string, k key) { m.setHashed(own, hashOf(name), name, k) }

func (m *keys) setHashed(own *ownership, hash uint32, name string, k key) {
	if m.encoded != nil {
		m.decode(own)
	}
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
	s.reserve(1)
	s.put(keySlot{hash, true, name, k})
}

func (m *keys) delete(own *ownership, name string) {
	if m.encoded != nil {
		m.decode(own)
	}
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
func (m *keys) scan(shard int) iter.Seq2[string, key] {
	return func(yield func(string, key) bool) {
		if m.encoded != nil {
			m.encoded.scan(shard, yield)
		}
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

// namedKey is a key and its name.
type namedKey struct {
	name string
	key  *key // must not be changed
}

// appendSorted appends the keys of one shard, by name.
func (m *keys) appendSorted(list []namedKey, shard int) []namedKey {
	if m.shards == nil {
		return list
	}
	s := &m.shards[shard]
	for i := range s.slots {
		if s.slots[i].used {
			list = append(list, namedKey{s.slots[i].name, &s.slots[i].key})
		}
	}
	// unordered: sorted below
	for name, k := range s.overflow {
		list = append(list, namedKey{name, &k})
	}
	slices.SortFunc(list, func(a, b namedKey) int { return strings.Compare(a.name, b.name) })
	return list
}

// shard returns the shard of a hash for changing.
func (m *keys) shard(own *ownership, hash uint32) *keyShard {
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

// home is the slot of a hash. The low bits chose the shard and are equal for
// all of them.
func (s *keyShard) home(hash uint32) int { return int(hash/shardCount) & (len(s.slots) - 1) }

// find returns the slot of a key. The first free slot ends the search.
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

// put stores a key that is not in the shard.
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

// reserve makes space for more keys: a quarter of the slots stays free.
func (s *keyShard) reserve(more int) {
	slots := max(minSlots, len(s.slots))
	for 4*(s.n+more) > 3*slots {
		slots *= 2
	}
	if slots > len(s.slots) {
		s.grow(slots)
	}
}

// grow changes the number of slots to a higher one.
func (s *keyShard) grow(slots int) {
	old := s.slots
	s.slots, s.n = make([]keySlot, slots), 0
	for i := range old {
		if old[i].used {
			s.put(old[i])
		}
	}
}

// vacate frees a slot. Following keys move up, so that there is no free slot
// between a key and its home.
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

// Key returns the job of an idempotency key. sealed is false while the job is
// being uploaded.
func (m *keys) Key(name string) (id JobID, digest [16]byte, sealed, known bool) {
	k, ok := m.get(name)
	return k.job, k.digest, k.sealed(), ok
}

// Keys is the number of remembered idempotency keys.
func (m *keys) Keys() int { return m.n }

// ExpiredKeys returns the sealed keys of one of KeyShards shards that expired
// at or before a time, sorted, at most limit.
func (m *keys) ExpiredKeys(part int, nowMS int64, limit int) []string {
	var names []string
	for name, k := range m.scan(part % KeyShards) {
		if k.sealed() && k.expires <= nowMS {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), limit)]
}

// check checks the job of each key. The key of a sealed job outlives it.
func (m *keys) check(jobs *jobTable, next JobID) error {
	n := 0
	if m.encoded != nil {
		for name, k := range m.encoded.all() {
			n++
			if err := checkKey(name, k, jobs, next); err != nil {
				return err
			}
		}
	} else {
		for shard := range shardCount {
			for name, k := range m.scan(shard) {
				n++
				if err := checkKey(name, &k, jobs, next); err != nil {
					return err
				}
			}
		}
	}
	if n != m.n {
		return fmt.Errorf("%d keys, counted %d", n, m.n)
	}
	return nil
}

func checkKey[N string | []byte](name N, k *key, jobs *jobTable, next JobID) error {
	j := jobs.get(k.job)
	switch {
	case len(name) == 0 || k.job == 0 || k.job >= next:
		return fmt.Errorf("key %q of job %d is out of range", name, k.job)
	case j != nil && (k.version <= submittedVersion && j.key != string(name) || k.sealed() == (j.state == JobUploading)):
		return fmt.Errorf("key %q does not match its job %d", name, k.job)
	case j == nil && !k.sealed():
		return fmt.Errorf("key %q of a missing upload", name)
	}
	return nil
}
