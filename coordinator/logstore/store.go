package logstore

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// MaxBatch is how many entries one call of Store.StoreLogs normally has. Raft counts
// entries, not bytes, in a request to a follower, so it is small.
const MaxBatch = 64

// Backend is what a Store needs of the store below it: raft-boltdb's, or one that
// stores the entries elsewhere.
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

// Store defends the log and the stable store. It is below raft.LogCache, so that what
// the cache contains has been verified.
//
//   - Every entry has a checksum, made at the leader and verified when it is stored and
//     read; so have the values of the stable store.
//   - The first error, panic or damage ends the process through Config.Fatal, once, and
//     fails every later call: after a failed write, and above all a failed sync, the
//     content of the disk is unknown.
//   - A call that hangs ends the process too: raft's heartbeats would keep a leader
//     with a dead disk in office forever.
//
// Two errors are expected and pass unchanged, since raft compares them:
// raft.ErrLogNotFound and the stable store's "not found".
type Store struct {
	backend Backend
	path    string // of the file or directory, for messages
	hang    time.Duration
	fatal   func(error)     // idempotent
	closing <-chan struct{} // closed when the replica starts to close; nil: never
	// onFirstStore is called after the first entry is stored durably.
	onFirstStore func() error

	committed *committedLog // part of backend
	// deletesAtOnce means that the backend deletes any number of entries in one short
	// transaction.
	deletesAtOnce bool

	failure atomic.Pointer[StoreError]
	closed  atomic.Bool // errors are expected from now on
	// running is true once raft's own goroutines call. See unwind.
	running atomic.Bool
	// started is true once raft has read, at start, all entries that its last snapshot
	// does not cover.
	started atomic.Bool
	stored  atomic.Bool // onFirstStore was called
	// deletions counts calls of DeleteRange, so that an entry that is missing because it
	// was deleted meanwhile is not taken for a hole.
	deletions struct{ started, ended atomic.Uint64 }

	voteTerm []byte // of a vote whose candidate follows; used by raft's main goroutine only

	counters storeCounters
}

// Stats counts what a Store has written since Open.
type Stats struct {
	Syncs   uint64 // writes, each synced
	Entries uint64
	Bytes   uint64
	Time    time.Duration // spent in the writes
}

type storeCounters struct {
	syncs, entries, bytes, nanos atomic.Uint64
	// sinceSnapshot is the bytes of entries that the last snapshot does not cover.
	sinceSnapshot atomic.Uint64
}

// Stats returns the counters. They are read one by one, so they may differ slightly in
// time.
func (s *Store) Stats() Stats {
	return Stats{
		Syncs: s.counters.syncs.Load(), Entries: s.counters.entries.Load(), Bytes: s.counters.bytes.Load(),
		Time: time.Duration(s.counters.nanos.Load()), //nolint:gosec // below 292 years
	}
}

// BytesSinceSnapshot returns the bytes of entries that the last snapshot does not
// cover.
func (s *Store) BytesSinceSnapshot() uint64 { return s.counters.sinceSnapshot.Load() }

// SnapshotTaken records that a snapshot covers as many bytes as BytesSinceSnapshot
// returned before.
func (s *Store) SnapshotTaken(bytes uint64) { s.counters.sinceSnapshot.Add(-bytes) }

// RaftStarting must be called before goroutines of raft call the store. See unwind.
func (s *Store) RaftStarting() { s.running.Store(true) }

// RaftStarted must be called when raft has read all entries that its last snapshot does
// not cover.
func (s *Store) RaftStarted() { s.started.Store(true) }

// StoreLogs implements raft.LogStore. Entries without a checksum are the leader's own
// and get one; all others are verified before they are written.
func (s *Store) StoreLogs(logs []*raft.Log) error {
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
	s.counters.nanos.Add(uint64(time.Since(start))) //nolint:gosec // not negative
	s.counters.syncs.Add(1)
	s.counters.entries.Add(uint64(len(logs)))
	s.counters.bytes.Add(uint64(bytes)) //nolint:gosec // a length
	s.counters.sinceSnapshot.Add(uint64(bytes))
	if s.onFirstStore != nil && s.stored.CompareAndSwap(false, true) {
		if err := s.onFirstStore(); err != nil {
			return s.fail("recording the first entry", err)
		}
	}
	return nil
}

// StoreLog implements raft.LogStore.
func (s *Store) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// IsMonotonic implements raft.MonotonicLogStore: this log has no holes, so raft deletes
// all of it when it receives a snapshot from the leader. Otherwise it would keep the
// last entries, committed or not, and append after the snapshot.
func (s *Store) IsMonotonic() bool { return true }

// FirstIndex implements raft.LogStore.
func (s *Store) FirstIndex() (uint64, error) {
	return s.index("reading the first index", s.backend.FirstIndex)
}

// LastIndex implements raft.LogStore.
func (s *Store) LastIndex() (uint64, error) {
	return s.index("reading the last index", s.backend.LastIndex)
}

func (s *Store) index(op string, read func() (uint64, error)) (index uint64, err error) {
	err = s.call(op, func() error {
		index, err = read()
		return err
	})
	return index, err
}

// bounds returns the first and the last index.
func (s *Store) bounds() (first, last uint64, err error) {
	if first, err = s.FirstIndex(); err != nil {
		return 0, 0, err
	}
	last, err = s.LastIndex()
	return first, last, err
}

// DeleteRange implements raft.LogStore. A compaction, which keeps later entries,
// proceeds from the front in steps, unless the backend deletes all at once: a crash
// leaves a log without holes. For the same reason the end of a log is deleted in one
// transaction.
func (s *Store) DeleteRange(first, last uint64) error {
	s.deletions.started.Add(1)
	defer s.deletions.ended.Add(1)
	lowest, highest, err := s.bounds()
	if err != nil {
		return err
	}
	if !s.deletesAtOnce && first <= lowest && last < highest {
		return s.compact(first, last)
	}
	return s.call("deleting entries", func() error { return s.backend.DeleteRange(first, last) })
}

// err returns why the store is unusable, or nil.
func (s *Store) err() error {
	if failure := s.failure.Load(); failure != nil {
		return failure
	}
	if s.closed.Load() {
		return raft.ErrRaftShutdown
	}
	return nil
}

// call runs one operation of the backend under the watchdog. bbolt panics on damaged
// pages and faults on a truncated file; both become errors.
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

// Fail makes every further call fail, and reports the cause as a failure of op, for
// which the stored data must not change any more. It returns the failure.
func (s *Store) Fail(op string, cause error) error { return s.fail(op, cause) }

// fail records and reports the first failure, and returns it.
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

// unwind ends the calling goroutine if it is raft's, which would panic over err. The
// process exits through Config.Fatal, which reports the cause; a stack trace of raft's
// would hide it. Before raft runs, unwind returns err for Open.
func (s *Store) unwind(err error) error {
	if s.running.Load() && s.failure.Load() != nil {
		runtime.Goexit()
	}
	return err
}

// watch starts the watchdog of one call and returns the function that stops it. It
// counts ticks, not time: while the whole process is stopped no ticks come, so a
// process that wakes up does not mistake its pause for a hanging disk.
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

// Close closes the backend. Calls that follow fail, and report no failure.
func (s *Store) Close() error {
	s.closed.Store(true)
	if err := s.backend.Close(); err != nil {
		return fmt.Errorf("closing %s: %w", s.path, err)
	}
	return nil
}
