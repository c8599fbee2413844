package fsm

import (
	"iter"
	"maps"
)

// shardCount divides a map, so that a write after a fork copies a 256th of it.
const shardCount = 256

// KeyShards is the number of shards of ExpiredKeys and ExpiredResults.
const KeyShards = shardCount

// cowMap is a map from strings that can be forked: the first write to a shard
// after a fork copies it.
type cowMap[V any] struct {
	own    *ownership
	shards *[shardCount]cowShard[V]
	n      int
}

type cowShard[V any] struct {
	own *ownership
	m   map[string]V
}

// hashOf is the FNV-1a hash of a key.
func hashOf[K ~string | ~[]byte](key K) uint32 {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return h
}

// shardOf returns the shard of a key.
func shardOf(key string) int { return int(hashOf(key) % shardCount) }

func (m *cowMap[V]) get(key string) (V, bool) {
	if m.shards == nil {
		var zero V
		return zero, false
	}
	v, ok := m.shards[shardOf(key)].m[key]
	return v, ok
}

func (m *cowMap[V]) shard(own *ownership, key string) *cowShard[V] {
	if m.own != own {
		fresh := new([shardCount]cowShard[V])
		if m.shards != nil {
			*fresh = *m.shards
		}
		m.shards, m.own = fresh, own
	}
	s := &m.shards[shardOf(key)]
	if s.own != own {
		s.m = maps.Clone(s.m)
		if s.m == nil {
			s.m = make(map[string]V)
		}
		s.own = own
	}
	return s
}

func (m *cowMap[V]) set(own *ownership, key string, v V) {
	s := m.shard(own, key)
	before := len(s.m)
	s.m[key] = v
	m.n += len(s.m) - before
}

func (m *cowMap[V]) delete(own *ownership, key string) {
	s := m.shard(own, key)
	before := len(s.m)
	delete(s.m, key)
	m.n += len(s.m) - before
}

// scan iterates over one shard, in no order.
func (m *cowMap[V]) scan(shard int) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if m.shards == nil {
			return
		}
		// unordered: callers sort, or collect for an operation that the log orders
		for k, v := range m.shards[shard].m {
			if !yield(k, v) {
				return
			}
		}
	}
}
