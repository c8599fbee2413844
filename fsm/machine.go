package fsm

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sort"
	"sync"
)

// Machine is a State behind a lock. Raft applies entries to it, and the rest
// of the replica reads it. Safe for concurrent use.
type Machine struct {
	mu      sync.RWMutex // guards the fields below; held for memory only
	state   *State
	index   uint64 // of the last applied entry
	marks   marks
	changed chan struct{} // closed and replaced after each entry, if waited
	waited  bool
	decoded map[*byte]Entry // entries that this replica proposed, by their bytes
	archive Archiver        // nil: jobs that leave are lost
	levels  Level           // supported up to this one
	touched []JobID         // that the entry being applied changes; kept for its memory
	events  eventRing

	subscriptions   subscriptions
	identityWatches identityWatches
}

// Archiver stores the jobs that leave the state. History is one.
type Archiver interface {
	// WaitForSpace returns when jobs can be taken. It is called without locks
	// before an entry that archives jobs is applied. It waits only if the disk
	// is so slow that memory would fill up otherwise.
	WaitForSpace()
	// Take takes the jobs that left at a log index. It is called in log order
	// while the state is locked, before readers can see that the jobs are gone.
	// It must not wait or call the machine.
	Take(index uint64, left *ArchiveBatch)
	// Restored reports that the state is now that of a snapshot at an index.
	// Jobs that left up to there and were not taken are no longer in the log.
	// The rules of Take apply.
	Restored(index uint64)
}

// ArchiveTo sets the archiver. It must be called before the first entry is
// applied.
func (m *Machine) ArchiveTo(a Archiver) { m.archive = a }

// SupportLevel makes the machine one of a build that supports levels up to highest. For tests
// of upgrades; it must be called before the first entry is applied.
func (m *Machine) SupportLevel(highest Level) { m.levels = highest }

// MaxLevel is the highest level that the machine supports.
func (m *Machine) MaxLevel() Level { return m.levels }

// leaving returns the effects of an entry that archives jobs, after waiting
// for space; nil for all other entries.
func (m *Machine) leaving(e Entry) *Effects {
	if m.archive == nil {
		return nil
	}
	for _, op := range e.Ops {
		switch op.(type) {
		case *Archive, *ExpireHistory:
			m.archive.WaitForSpace()
			return &Effects{Archived: new(ArchiveBatch)}
		}
	}
	return nil
}

// NewMachine returns the machine before the first entry.
func NewMachine() *Machine {
	return &Machine{state: New(), levels: MaxLevel, changed: make(chan struct{}), decoded: make(map[*byte]Entry)}
}

// Applied is the result of Apply.
type Applied struct {
	Index    uint64
	Digest   uint64
	Rejected Reason // of the first rejected operation; Accepted if all were accepted
}

// HaltError means that this replica cannot apply an entry. It must stop:
// continuing would make it diverge.
type HaltError struct {
	Index uint64
	Err   error
}

// Error names the entry.
func (e *HaltError) Error() string { return fmt.Sprintf("halting at log entry %d: %v", e.Index, e.Err) }

// Unwrap returns the cause.
func (e *HaltError) Unwrap() error { return e.Err }

// CacheDecoded caches the decoded form of an entry that this replica is about
// to propose, so that it does not decode its own log. data must be the
// encoding of e, and must reach Apply as the same slice.
func (m *Machine) CacheDecoded(data []byte, e Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.decoded[&data[0]] = e
}

// DropDecoded drops a cached entry that was not proposed.
func (m *Machine) DropDecoded(data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.decoded, &data[0])
}

// Apply applies the entry at an index. It returns an Applied or a *HaltError.
func (m *Machine) Apply(index uint64, data []byte) any {
	e, err := m.take(data)
	if err == nil {
		err = checkLevels(e, m.levels)
	}
	if err != nil {
		return &HaltError{Index: index, Err: err}
	}
	fx := m.leaving(e)
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.applyEntry(index, e, fx)
	if fx != nil {
		m.archive.Take(index, fx.Archived)
	}
	digest := m.state.Digest()
	m.marks.add(index, digest, e.NowMS)
	if m.waited {
		close(m.changed)
		m.changed, m.waited = make(chan struct{}), false
	}
	return Applied{Index: index, Digest: digest, Rejected: r}
}

// applyEntry changes the state and signals what changed to subscribers. The machine is
// locked.
func (m *Machine) applyEntry(index uint64, e Entry, fx *Effects) Reason {
	own := m.state.own
	own.at, own.events, m.touched = index, &m.events, m.touched[:0]
	if m.subscriptions.any() {
		own.changed = &m.touched
	}
	identityChanges := m.state.identityChanges
	r := m.state.Apply(e, fx)
	m.index, own.changed = index, nil
	m.subscriptions.signal(m.state, m.touched)
	if m.state.identityChanges != identityChanges {
		m.identityWatches.signal()
	}
	return r
}

func (m *Machine) take(data []byte) (Entry, error) {
	if len(data) > 0 {
		m.mu.Lock()
		e, ok := m.decoded[&data[0]]
		if ok {
			delete(m.decoded, &data[0])
		}
		m.mu.Unlock()
		if ok {
			return e, nil
		}
	}
	return Decode(data)
}

// Read calls f with the state and its applied index. The state does not
// change during the call and must not be retained. Use Fork for long reads.
func (m *Machine) Read(f func(s *State, index uint64)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f(m.state, m.index)
}

// Fork returns a copy of the state that belongs to the caller, and its index.
func (m *Machine) Fork() (*State, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.Fork(), m.index
}

// Index is the applied index.
func (m *Machine) Index() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.index
}

// Changed returns a channel that is closed when an entry after the given
// index is applied. If there is such an entry, the channel is closed already.
func (m *Machine) Changed(after uint64) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.index > after {
		done := make(chan struct{})
		close(done)
		return done
	}
	m.waited = true
	return m.changed
}

// Await waits until the applied index is at least index.
func (m *Machine) Await(ctx context.Context, index uint64) error {
	for {
		at := m.Index()
		if at >= index {
			return nil
		}
		// unordered: waiting changes no state
		select {
		case <-m.Changed(at):
		case <-ctx.Done():
			return fmt.Errorf("waiting for log entry %d, applied %d: %w", index, at, context.Cause(ctx))
		}
	}
}

// Snapshot is the state at one index. It is written while Apply continues.
type Snapshot struct {
	state *State
	index uint64
}

// Snapshot returns the current state. Its cost does not grow with the tasks.
func (m *Machine) Snapshot() *Snapshot {
	s, index := m.Fork()
	return &Snapshot{state: s, index: index}
}

// Index is the log index of the state.
func (s *Snapshot) Index() uint64 { return s.index }

// State is the state, until Release. It must not be changed.
func (s *Snapshot) State() *State { return s.state }

// Persist writes the snapshot.
func (s *Snapshot) Persist(w io.Writer) error {
	var head [8]byte
	binary.LittleEndian.PutUint64(head[:], s.index)
	if _, err := w.Write(head[:]); err != nil {
		return fmt.Errorf("writing snapshot: %w", err)
	}
	return s.state.WriteSnapshot(w)
}

// Release frees the memory.
func (s *Snapshot) Release() { s.state = nil }

// Restore replaces the state by a persisted snapshot after reading all of it.
// If the snapshot cannot be read, nothing changes.
func (m *Machine) Restore(r io.Reader) error {
	take, err := m.PrepareRestore(r)
	if err == nil {
		take()
	}
	return err
}

// PrepareRestore reads what Snapshot.Persist wrote into a separate state. The
// machine does not change until take is called, at most once, which swaps in
// the new state.
func (m *Machine) PrepareRestore(r io.Reader) (take func(), err error) {
	return m.prepareRestore(r, false)
}

// RestoreToRewrite is Restore for a state that is only checked, or written again with few
// changes. It is faster and needs less memory, but looking up a key takes long, and the first
// change of a key makes up for all of them.
func (m *Machine) RestoreToRewrite(r io.Reader) error {
	take, err := m.prepareRestore(r, true)
	if err == nil {
		take()
	}
	return err
}

func (m *Machine) prepareRestore(r io.Reader, rewritten bool) (take func(), err error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("reading snapshot: %w", unexpected(err))
	}
	s, err := readSnapshot(r, m.levels, rewritten)
	if err != nil {
		return nil, err
	}
	index := binary.LittleEndian.Uint64(head[:])
	return func() { m.replace(s, index) }, nil
}

func (m *Machine) replace(s *State, index uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state, m.index = s, index
	s.jobs.forgetChanges(m.index)
	m.events.reset(index)
	if m.archive != nil {
		m.archive.Restored(m.index)
	}
	m.marks = marks{}
	clear(m.decoded)
	close(m.changed)
	m.changed, m.waited = make(chan struct{}), false
	m.subscriptions.signalAll()
	m.identityWatches.signal()
}

// Mark is the digest after the entry at an index.
type Mark struct{ Index, Digest uint64 }

// markCount is the number of past entries whose digests replicas can compare.
const markCount = 4096

// marks is a ring buffer of the last digests, with the time stamps of their entries.
type marks struct {
	ring  [markCount]Mark
	times [markCount]int64 // Unix milliseconds
	next  int
}

func (m *marks) add(index, digest uint64, nowMS int64) {
	m.ring[m.next%markCount], m.times[m.next%markCount] = Mark{index, digest}, nowMS
	m.next++
}

// NextEntry returns the time stamp of the first entry that was applied after the one at an
// index. known is false if no entry was, or if the index is before the past entries that are
// kept.
func (m *Machine) NextEntry(index uint64) (nowMS int64, known bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	first := max(0, m.marks.next-markCount)
	kept := m.marks.next - first
	k := sort.Search(kept, func(k int) bool { return m.marks.ring[(first+k)%markCount].Index > index })
	if k == 0 || k == kept {
		return 0, false
	}
	return m.marks.times[(first+k)%markCount], true
}

// Marks returns the digests after the last entries from an index on, oldest
// first.
func (m *Machine) Marks(from uint64) []Mark {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var list []Mark
	for i := max(0, m.marks.next-markCount); i < m.marks.next; i++ {
		if k := m.marks.ring[i%markCount]; k.Index >= from {
			list = append(list, k)
		}
	}
	return list
}

// Flip damages the record of a task, so that tests can see the digest detect
// it. It reports whether there was a record.
func (m *Machine) Flip(t TaskRef) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.state.jobs.write(m.state.own, t.Job)
	if j == nil || t.Index >= j.records.n {
		return false
	}
	j.records.write(m.state.own, t.Index).failures ^= 1 << 20
	return true
}
