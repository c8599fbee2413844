package raftnode

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/logstore"
)

// FSM is the replicated state machine. Apply, Snapshot and Restore are never called
// concurrently with each other.
type FSM interface {
	// Apply applies the next entry; index only grows. It returns the response of the
	// proposal at the replica that proposed. It may keep data but must not change it,
	// since the log shares it. A panic, or a returned Halt, stops the replica.
	Apply(index, term uint64, data []byte) any
	// Snapshot captures the state in O(1); Apply waits for it.
	Snapshot() (Snapshot, error)
	// Restore reads what a snapshot's Persist wrote into a separate state. The present
	// state stays as it is until take is called, which replaces it. Restore verifies
	// that it reads exactly what was written. It is called while others read the
	// present state, and take may never be called.
	Restore(r io.Reader) (take func(), err error)
}

// Snapshot is a captured state.
type Snapshot interface {
	// Persist writes the state while Apply continues.
	Persist(w io.Writer) error
	// Release is called once, when the snapshot is no longer needed.
	Release()
}

// Halt, returned by FSM.Apply, means that the entry cannot be applied here: the replica
// stops, and Config.Fatal is called with a HaltError.
type Halt struct{ Err error }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// halted is the response of entries that were not applied. It never leaves this
// package: the proposer gets ErrOutcomeUnknown.
type halted struct{}

// fsmAdapter connects raft to the FSM: it verifies each entry, records what was
// applied, and stops forever at the first entry that cannot be applied. Invariant:
// applied never passes such an entry.
type fsmAdapter struct {
	fsm   FSM
	fatal func(error) // idempotent
	// writer returns what a snapshot's state is written through.
	writer func(raft.SnapshotSink) (io.WriteCloser, error)

	stopped atomic.Bool
	applied atomic.Uint64 // index of the last entry that the FSM has applied
	term    atomic.Uint64 // its term

	mu    sync.Mutex  // guards terms, and changes of applied with it
	terms termHistory // up to applied
}

var _ raft.FSM = (*fsmAdapter)(nil)

func newFSMAdapter(fsm FSM, fatal func(error), writer func(raft.SnapshotSink) (io.WriteCloser, error)) *fsmAdapter {
	return &fsmAdapter{fsm: fsm, fatal: fatal, writer: writer}
}

// Apply implements raft.FSM.
func (a *fsmAdapter) Apply(log *raft.Log) any {
	if a.stopped.Load() {
		return halted{}
	}
	if problem := logstore.Verify(log); problem != "" {
		return a.halt(log, &logstore.DamageError{Detail: problem})
	}
	response := a.apply(log)
	if halt, ok := response.(Halt); ok {
		return a.halt(log, halt.Err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.terms.add(log)
	a.advance(log.Index, log.Term)
	return response
}

func (a *fsmAdapter) apply(log *raft.Log) (response any) {
	defer func() {
		if r := recover(); r != nil {
			err, ok := r.(error)
			if !ok {
				err = fmt.Errorf("%v", r)
			}
			response = Halt{Err: err}
		}
	}()
	return a.fsm.Apply(log.Index, log.Term, log.Data)
}

func (a *fsmAdapter) halt(log *raft.Log, err error) any {
	a.stopped.Store(true)
	a.fatal(&HaltError{Index: log.Index, Term: log.Term, Err: err})
	return halted{}
}

func (a *fsmAdapter) advance(index, term uint64) {
	a.term.Store(term)
	a.applied.Store(index)
}

// Snapshot implements raft.FSM.
func (a *fsmAdapter) Snapshot() (raft.FSMSnapshot, error) {
	if a.stopped.Load() {
		return nil, errors.New("state machine has halted")
	}
	snapshot, err := a.fsm.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("capturing the state: %w", err)
	}
	terms, index := a.history()
	header := snapshotHeader{index: index, term: a.term.Load(), terms: terms}
	return &fsmSnapshot{snapshot: snapshot, header: header, writer: a.writer}, nil
}

// history returns the terms of what was applied, and the index of its last entry.
func (a *fsmAdapter) history() (terms termHistory, applied uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.terms.clone(), a.applied.Load()
}

// Restore implements raft.FSM.
func (a *fsmAdapter) Restore(source io.ReadCloser) error {
	if a.stopped.Load() {
		return errors.New("state machine has halted")
	}
	state, err := readState(a.fsm, source)
	if err != nil {
		return err
	}
	a.use(state)
	return nil
}

// use replaces the present state with one that was restored.
func (a *fsmAdapter) use(s restoredState) {
	s.use()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.terms = s.terms
	a.advance(s.index, s.term)
}

// restoredState is a state that was read from a snapshot and is not in use yet. It
// contains the entries up to index.
type restoredState struct {
	snapshotHeader

	use func()
}

func readState(fsm FSM, source io.Reader) (state restoredState, err error) {
	if state.snapshotHeader, err = readHeader(source); err != nil {
		return state, err
	}
	if state.use, err = fsm.Restore(source); err != nil {
		return state, fmt.Errorf("restoring the state: %w", err)
	}
	return state, nil
}

// fsmSnapshot is a captured state that raft writes to the snapshot store.
type fsmSnapshot struct {
	snapshot Snapshot
	header   snapshotHeader
	writer   func(raft.SnapshotSink) (io.WriteCloser, error)
}

// Persist implements raft.FSMSnapshot. On an error raft cancels the sink.
func (s *fsmSnapshot) Persist(sink raft.SnapshotSink) (err error) {
	if file, ok := sink.(*snapshotSink); ok {
		file.own = true
	}
	to, err := s.writer(sink)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if _, err := to.Write(s.header.encode()); err != nil {
		return fmt.Errorf("writing snapshot header: %w", err)
	}
	if err := s.snapshot.Persist(to); err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	return nil
}

// Release implements raft.FSMSnapshot.
func (s *fsmSnapshot) Release() { s.snapshot.Release() }
