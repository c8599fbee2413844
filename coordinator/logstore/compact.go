package logstore

import "time"

// bbolt has one writer: a compaction in one piece would stop the log for its length. So
// it deletes entries in steps, each a transaction of its own that no entry waits long
// for, and with pauses between them, so that it does not take the log every other turn.
// Entries have a few bytes or some hundred KiB: how many a step deletes follows from
// how long the last one took.
const (
	deleteFewest = 32
	deleteMost   = 1024
	deleteTime   = 4 * time.Millisecond  // what a step should take, about
	deletePause  = 10 * time.Millisecond // the longest
)

// deleteStep is how many entries the next step deletes, after one of so many that took
// a time.
func deleteStep(entries uint64, took time.Duration) uint64 {
	switch {
	case took < deleteTime/2:
		entries *= 2
	case took > deleteTime:
		entries /= 2
	}
	return min(max(entries, deleteFewest), deleteMost)
}

// compact deletes the entries at the front of the log, in steps. It fails with
// ErrClosing once the node is closing: what is left is deleted by the next compaction.
func (s *Store) compact(first, last uint64) error {
	for entries := uint64(deleteFewest); ; {
		select {
		case <-s.closing: // asked by itself: below, a pause that is over as well may be chosen
			return ErrClosing
		default:
		}
		end := min(last, first+entries-1)
		start := time.Now()
		if err := s.call("compacting the log", func() error { return s.backend.DeleteRange(first, end) }); err != nil {
			return err
		}
		if end == last {
			return nil
		}
		took := time.Since(start)
		first, entries = end+1, deleteStep(entries, took)
		pause := time.NewTimer(min(took, deletePause))
		select {
		case <-pause.C:
		case <-s.closing:
			pause.Stop()
		}
	}
}
