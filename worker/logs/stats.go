package logs

// Stats describes a Store.
type Stats struct {
	Bytes   int64  // on disk, about
	Dropped uint64 // bytes of output that could not be written since Open
}

// Stats returns what the store has on disk and has lost.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := Stats{Bytes: s.bytes(), Dropped: s.dropped}
	for _, w := range s.writers {
		if w.overflow != nil {
			stats.Bytes += w.overflow.total
		}
	}
	return stats
}

// bytes is the size of all segments and long outputs.
func (s *Store) bytes() int64 {
	total := int64(0)
	for _, seg := range s.segments {
		total += seg.cost()
	}
	for _, l := range s.long {
		total += l.bytes
	}
	return total
}
