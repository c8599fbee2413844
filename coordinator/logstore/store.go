package logstore

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"
	bolterrors "go.etcd.io/bbolt/errors"
)

// MaxBatch is how many entries one call of Store.StoreLogs normally has. Raft counts
// entries, not bytes, in a request to a follower, so it is small.
const MaxBatch = 64

// Backend is what the defended store needs of raft-boltdb's store, and of what has the
// entries in its place.
type Backend interface {
	FirstIndex() (uint64, error)
	LastIndex() (uint64, error)
	GetLog(index uint64, log *raft.Log) error
	StoreLogs(logs []*raft.Log) error
	DeleteRange(first, last uint64) error
	Set(key, value []byte) error
	Get(key []byte) ([]byte, error)
	Close() error
}

// store defends the log and the stable store. It sits under raft.LogCache, so
// that what the cache holds has been verified.
//
//   - Every entry carries a checksum, made at the leader and verified on store and
//     read; so do the values of the stable store.
//   - The first error, panic or damage ends the process by way of fatal, once, and
//     fails every later call: after a failed write, and above all a failed sync,
//     nobody knows what is on the disk.
//   - A call that hangs ends the process too: raft's heartbeats would keep a leader
//     with a dead disk in office for ever.
//
// Two errors are ordinary and pass unchanged, since raft compares them:
// raft.ErrLogNotFound and the stable store's "not found".
type Store struct {
	backend Backend
	path    string // of the file or folder, for messages
	hang    time.Duration
	fatal   func(error)     // idempotent
	closing <-chan struct{} // closed when the node begins to close; nil: never
	// onFirstStore is called after the first entry has been stored durably.
	onFirstStore func() error

	// whole says that the backend removes any number of entries in one short
	// transaction.
	whole bool

	failure atomic.Pointer[StoreError]
	closed  atomic.Bool // the node is closing: errors are expected now
	// running is true once raft's own goroutines call. See unwind.
	running atomic.Bool
	// started is true once raft has read, at start, all entries that its last
	// snapshot does not cover.
	started atomic.Bool
	stored  atomic.Bool // onFirstStore was called
	// deletions counts DeleteRange calls, so that a miss while entries were
	// being deleted is not taken for a hole.
	deletions atomic.Uint64

	counters storeCounters
}

// Stats counts what a Store has written since Open.
type Stats struct {
	Syncs   uint64 // writes, each synced
	Entries uint64
	Bytes   uint64
	Time    time.Duration // spent in the writes
}

// Stats returns the counters. They are read one by one, so they may differ slightly in
// time.
func (s *Store) Stats() Stats {
	return Stats{
		Syncs: s.counters.syncs.Load(), Entries: s.counters.entries.Load(), Bytes: s.counters.bytes.Load(),
		Time: time.Duration(s.counters.nanos.Load()), //nolint:gosec // 292 years
	}
}

// BytesSinceSnapshot returns the bytes of entries that the last snapshot does not
// cover.
func (s *Store) BytesSinceSnapshot() uint64 { return s.counters.sinceSnapshot.Load() }

// SnapshotTaken records that a snapshot covers as many bytes as BytesSinceSnapshot
// returned before.
func (s *Store) SnapshotTaken(bytes uint64) { s.counters.sinceSnapshot.Add(-bytes) }

// RaftStarting tells the store that goroutines of raft call it from now on. See unwind.
func (s *Store) RaftStarting() { s.running.Store(true) }

// RaftStarted tells the store that raft has read all entries that its last snapshot
// does not cover.
func (s *Store) RaftStarted() { s.started.Store(true) }

type storeCounters struct {
	syncs, entries, bytes, nanos atomic.Uint64
	// sinceSnapshot is the bytes of entries that the last snapshot does not cover.
	sinceSnapshot atomic.Uint64
}

// StoreLogs implements raft.LogStore. Entries without a checksum are the leader's
// own and get one; any other is verified before it touches the disk.
func (s *Store) StoreLogs(logs []*raft.Log) error {
	if err := s.err(); err != nil {
		return err
	}
	bytes := 0
	for _, log := range logs {
		if len(log.Extensions) == 0 {
			seal(log)
		} else if problem := Verify(log); problem != "" {
			return s.fail("storing received entries", &DamageError{Detail: problem})
		}
		bytes += len(log.Data)
	}
	start := time.Now()
	if err := s.call("storing entries", func() error { return s.backend.StoreLogs(logs) }); err != nil {
		return err
	}
	s.counters.nanos.Add(uint64(time.Since(start))) //nolint:gosec // a duration since a start is not negative
	s.counters.syncs.Add(1)
	s.counters.entries.Add(uint64(len(logs)))
	s.counters.bytes.Add(uint64(bytes)) //nolint:gosec // a length
	s.counters.sinceSnapshot.Add(uint64(bytes))
	if s.onFirstStore != nil && s.stored.CompareAndSwap(false, true) {
		if err := s.onFirstStore(); err != nil {
			return s.fail("marking the folder", err)
		}
	}
	return nil
}

// StoreLog implements raft.LogStore.
func (s *Store) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// GetLog implements raft.LogStore. An entry that is not what was stored, or is
// missing between others, is damage.
func (s *Store) GetLog(index uint64, log *raft.Log) error {
	if err := s.err(); err != nil {
		return s.unwind(err)
	}
	deletions := s.deletions.Load()
	var missing bool
	err := s.call("reading an entry", func() error {
		err := s.backend.GetLog(index, log)
		missing = errors.Is(err, raft.ErrLogNotFound)
		switch {
		case err == nil || missing:
			return nil
		case errors.Is(err, bolterrors.ErrDatabaseNotOpen), errors.Is(err, raftwal.ErrClosed):
			return err
		default: // bytes that cannot be decoded
			return &DamageError{Path: s.path, Detail: fmt.Sprintf("entry %d: %v", index, err)}
		}
	})
	switch {
	case err != nil:
		return s.unwind(err)
	case missing && s.isHole(index, deletions):
		detail := fmt.Sprintf("entry %d is missing between others", index)
		return s.unwind(s.fail("reading an entry", &DamageError{Path: s.path, Detail: detail}))
	case missing:
		return raft.ErrLogNotFound
	}
	problem := Verify(log)
	if problem == "" && log.Index != index {
		problem = fmt.Sprintf("entry %d is stored in the place of entry %d", log.Index, index)
	}
	if problem != "" {
		return s.unwind(s.fail("reading an entry", &DamageError{Path: s.path, Detail: problem}))
	}
	if !s.started.Load() && s.running.Load() { // not while the log is being checked
		s.counters.sinceSnapshot.Add(uint64(len(log.Data)))
	}
	return nil
}

// check reads the whole log: what is damaged is found now, and not when a follower
// asks for it.
func (s *Store) check() error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	var log raft.Log
	for index := first; index != 0 && index <= last; index++ {
		log = raft.Log{Data: log.Data[:0]} // the room is used again: this is all that was ever stored
		if err := s.GetLog(index, &log); err != nil {
			return fmt.Errorf("checking the log: %w", err)
		}
	}
	return nil
}

// IsMonotonic implements raft.MonotonicLogStore: this log has no holes, so that
// raft removes all of it when it takes a snapshot from the leader. It would leave
// the last entries from before otherwise, committed or not, and go on behind the
// snapshot.
func (s *Store) IsMonotonic() bool { return true }

// isHole says whether an absent entry should be there. deletions is the count
// before the entry was looked for.
func (s *Store) isHole(index, deletions uint64) bool {
	first, err := s.FirstIndex()
	if err != nil {
		return false
	}
	last, err := s.LastIndex()
	if err != nil {
		return false
	}
	return first != 0 && first <= index && index <= last && s.deletions.Load() == deletions
}

// FirstIndex implements raft.LogStore.
func (s *Store) FirstIndex() (index uint64, err error) {
	err = s.call("reading the first index", func() (err error) {
		index, err = s.backend.FirstIndex()
		return err
	})
	return index, err
}

// LastIndex implements raft.LogStore.
func (s *Store) LastIndex() (index uint64, err error) {
	err = s.call("reading the last index", func() (err error) {
		index, err = s.backend.LastIndex()
		return err
	})
	return index, err
}

// DeleteRange implements raft.LogStore. A compaction, which leaves later entries in
// place, is done in chunks from the front, unless the backend does it at once: whatever
// a crash leaves is a log without a hole. The end of a log is removed in one
// transaction for that reason.
func (s *Store) DeleteRange(first, last uint64) error {
	s.deletions.Add(1)
	defer s.deletions.Add(1)
	lowest, err := s.FirstIndex()
	if err != nil {
		return err
	}
	highest, err := s.LastIndex()
	if err != nil {
		return err
	}
	if !s.whole && first <= lowest && last < highest {
		return s.compact(first, last)
	}
	return s.call("deleting entries", func() error { return s.backend.DeleteRange(first, last) })
}

// err returns why the store is not usable, or nil.
func (s *Store) err() error {
	if failure := s.failure.Load(); failure != nil {
		return failure
	}
	if s.closed.Load() {
		return raft.ErrRaftShutdown
	}
	return nil
}

// call runs one operation of the backend under the watchdog. bbolt panics on
// damaged pages and faults on a truncated file; both become errors here.
func (s *Store) call(op string, f func() error) (err error) {
	if err := s.err(); err != nil {
		return err
	}
	defer s.watch(op)()
	defer func() {
		if r := recover(); r != nil {
			err = &DamageError{Path: s.path, Detail: fmt.Sprint(r)}
		}
		if err != nil {
			err = s.fail(op, err)
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return f()
}

// fail records the first failure, ends the process, and returns the failure.
func (s *Store) fail(op string, cause error) error {
	if s.closed.Load() {
		return raft.ErrRaftShutdown
	}
	failure := &StoreError{Op: op, Err: cause}
	if !s.failure.CompareAndSwap(nil, failure) {
		return s.failure.Load()
	}
	s.fatal(failure)
	return failure
}

// unwind ends the calling goroutine of raft, where raft would panic over err. The
// process is on its way out through fatal, which says why and closes what can be
// closed; a stack trace of raft's would hide that. Before raft runs, err is
// returned to Open.
func (s *Store) unwind(err error) error {
	if s.running.Load() && s.failure.Load() != nil {
		runtime.Goexit()
	}
	return err
}

// watch starts the watchdog of one call and returns what stops it. It counts
// ticks, not time: while the whole process is stopped no ticks come, and a
// process that wakes up has not had a hanging disk.
func (s *Store) watch(op string) (stop func()) {
	const ticks = 15
	var (
		seen  atomic.Int32
		timer atomic.Pointer[time.Timer]
		done  atomic.Bool
	)
	step := s.hang / ticks
	var tick func()
	tick = func() {
		switch {
		case done.Load():
		case seen.Add(1) >= ticks:
			_ = s.fail(op, ErrHang)
		default:
			timer.Store(time.AfterFunc(step, tick))
		}
	}
	timer.Store(time.AfterFunc(step, tick))
	return func() {
		done.Store(true)
		timer.Load().Stop()
	}
}

// Close closes the backend. Errors of calls that still come are not failures.
func (s *Store) Close() error {
	s.closed.Store(true)
	if err := s.backend.Close(); err != nil {
		return fmt.Errorf("closing %s: %w", s.path, err)
	}
	return nil
}
