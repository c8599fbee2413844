package logstore

import "time"

// bbolt has one writer: a compaction in one transaction would block the log for its
// duration. So entries are deleted in steps, each a short transaction, with pauses
// between them, so that compaction takes less than every other turn. An entry has a few
// bytes or some hundred KiB: the size of a step follows from the duration of the
// previous one.
const (
	minDeleteStep  = 32
	maxDeleteStep  = 1024
	deleteStepTime = 4 * time.Millisecond // target duration of a step
	maxDeletePause = 10 * time.Millisecond
)

// nextDeleteStep returns how many entries the next step deletes, after one of entries
// that took a time.
func nextDeleteStep(entries uint64, took time.Duration) uint64 {
	switch {
	case took < deleteStepTime/2:
		entries *= 2
	case took > deleteStepTime:
		entries /= 2
	}
	return min(max(entries, minDeleteStep), maxDeleteStep)
}

// compact deletes the entries at the front of the log, in steps. It fails with
// ErrClosing once the replica closes: the next compaction deletes the remaining
// entries.
func (s *Store) compact(first, last uint64) error {
	for entries := uint64(minDeleteStep); ; {
		select {
		case <-s.closing: // checked alone: the select below may choose an expired timer instead
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
		first, entries = end+1, nextDeleteStep(entries, took)
		select {
		case <-time.After(min(took, maxDeletePause)):
		case <-s.closing:
		}
	}
}
