package logstore

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

const (
	// cachedEntries is how many entries stay in memory for the followers; at the usual
	// limit of 256 KiB per entry they take at most 16 MiB.
	cachedEntries = 64
	// maxPendingBytes is how many bytes a leader appends before it waits for its disk.
	// Proposals have a smaller bound of their own.
	maxPendingBytes = 4 << 20
)

// ParallelLog is the log as raft uses it. A leader's entries are stored while they are
// sent to the followers, and those that arrive meanwhile are stored together afterwards
// (Ongaro, "Consensus: Bridging Theory and Practice", 10.2.1).
//
// Raft stores an entry before it sends it, and counts it as stored here as soon as
// StoreLogs returns. A leader's StoreLogs only queues it. So that no entry counts that
// is on no disk:
//
//   - A follower's acknowledgment counts only after the entry is stored here, too
//     (transport.Transport.AppendEntries, WaitStored). A commit needs at least one of
//     them, so it needs this disk as well, exactly as before.
//   - A leader that is the only voter, and one that changes the configuration, stores
//     first.
//   - A replica that no longer leads returns an entry only after it is stored.
//   - A store that fails ends the process (Store.fail). Entries that were not stored
//     count as never sent: their commit was reported to no client.
type ParallelLog struct {
	*raft.LogCache // stored entries, the last of them in memory

	// shares reports whether this replica leads and needs another one's vote; nil until
	// raft runs.
	shares atomic.Pointer[func() bool]
	newest newestIndex // passed to StoreLogs
	// configured is the index of the last configuration that was passed to StoreLogs; of
	// the last entry at the start until then.
	configured atomic.Uint64

	mu      sync.Mutex // guards what follows
	changed *sync.Cond
	pending []*raft.Log // not stored yet; their indexes are consecutive
	bytes   int         // of the data of pending
	failure error       // of the store
	closed  bool

	writer sync.WaitGroup
}

// NewParallelLog starts the goroutine that writes. Close ends it.
func NewParallelLog(s raft.LogStore) *ParallelLog {
	cache, _ := raft.NewLogCache(cachedEntries, s) // it fails only for a size below one
	p := &ParallelLog{LogCache: cache}
	last, err := s.LastIndex()
	if err != nil { // raft reads it, too, and does not start
		last = math.MaxUint64
	}
	p.configured.Store(last)
	p.changed = sync.NewCond(&p.mu)
	p.writer.Go(p.write)
	return p
}

// Share makes a leader send its entries before they are stored. The function reports
// whether this replica leads and needs the vote of another one. Until Share is called,
// every entry is stored first.
func (p *ParallelLog) Share(leadsWithOthers func() bool) { p.shares.Store(&leadsWithOthers) }

// Newest returns the index of the last entry passed to StoreLogs, and a channel that is
// closed when the next one is.
func (p *ParallelLog) Newest() (index uint64, changed <-chan struct{}) { return p.newest.get() }

// Configured returns an index that is not below that of the configuration that raft has
// read from the log. When it is committed, so is the configuration.
func (p *ParallelLog) Configured() uint64 { return p.configured.Load() }

// sharing reports whether this replica leads and needs another one's vote. Raft calls
// it.
func (p *ParallelLog) sharing() bool {
	shares := p.shares.Load()
	return shares != nil && (*shares)()
}

// StoreLog implements raft.LogStore.
func (p *ParallelLog) StoreLog(log *raft.Log) error { return p.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore. Raft calls it from the goroutine that also starts
// and stops leading.
func (p *ParallelLog) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	defer p.newest.set(logs[len(logs)-1].Index) // after the entries are readable
	for _, log := range slices.Backward(logs) {
		if changesMembers(log) {
			p.configured.Store(log.Index) // before raft uses it
			break
		}
	}
	if !p.sharing() || slices.ContainsFunc(logs, changesMembers) {
		if err := p.WaitStored(logs[0].Index - 1); err != nil {
			return err
		}
		return p.LogCache.StoreLogs(logs) //nolint:wrapcheck // Store made it
	}
	bytes := 0
	for _, log := range logs {
		seal(log) // before followers read it
		bytes += len(log.Data)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.failure == nil && p.bytes >= maxPendingBytes {
		p.changed.Wait()
	}
	if p.failure != nil {
		return p.failure
	}
	p.pending = append(p.pending, logs...)
	p.bytes += bytes
	p.changed.Broadcast()
	return nil
}

func changesMembers(log *raft.Log) bool { return log.Type == raft.LogConfiguration }

// WaitStored returns when all entries up to an index are stored, or with the error of
// the store.
func (p *ParallelLog) WaitStored(index uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.failure == nil && len(p.pending) > 0 && p.pending[0].Index <= index {
		p.changed.Wait()
	}
	return p.failure
}

// GetLog implements raft.LogStore.
func (p *ParallelLog) GetLog(index uint64, log *raft.Log) error {
	if !p.fromPending(index, log) {
		return p.LogCache.GetLog(index, log) //nolint:wrapcheck // raft compares raft.ErrLogNotFound
	}
	if p.sharing() {
		return nil
	}
	return p.WaitStored(index)
}

// fromPending reads an entry that is not stored yet, and reports whether it did.
func (p *ParallelLog) fromPending(index uint64, log *raft.Log) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) == 0 || index < p.pending[0].Index || index-p.pending[0].Index >= uint64(len(p.pending)) {
		return false
	}
	*log = *p.pending[index-p.pending[0].Index]
	return true
}

// FirstIndex implements raft.LogStore.
func (p *ParallelLog) FirstIndex() (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first, err := p.LogCache.FirstIndex()
	if first == 0 && len(p.pending) > 0 {
		first = p.pending[0].Index
	}
	return first, err //nolint:wrapcheck // Store made it
}

// LastIndex implements raft.LogStore.
func (p *ParallelLog) LastIndex() (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.pending); n > 0 {
		return p.pending[n-1].Index, nil
	}
	return p.LogCache.LastIndex() //nolint:wrapcheck // Store made it
}

// DeleteRange implements raft.LogStore.
func (p *ParallelLog) DeleteRange(first, last uint64) error {
	if err := p.WaitStored(last); err != nil {
		return err
	}
	return p.LogCache.DeleteRange(first, last) //nolint:wrapcheck // Store made it
}

// write stores all pending entries together, again and again, until the log is closed
// and none is pending, or the store fails.
func (p *ParallelLog) write() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for len(p.pending) == 0 && !p.closed {
			p.changed.Wait()
		}
		if len(p.pending) == 0 {
			return
		}
		batch, bytes := slices.Clone(p.pending), p.bytes
		p.mu.Unlock()
		err := p.LogCache.StoreLogs(batch)
		p.mu.Lock()
		p.failure = err
		p.changed.Broadcast()
		if err != nil {
			return
		}
		p.pending = slices.Delete(p.pending, 0, len(batch))
		p.bytes -= bytes
	}
}

// Close stores all pending entries. Raft no longer runs.
func (p *ParallelLog) Close() {
	p.mu.Lock()
	p.closed = true
	p.changed.Broadcast()
	p.mu.Unlock()
	p.writer.Wait()
}
