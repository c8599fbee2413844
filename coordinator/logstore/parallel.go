package logstore

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

const (
	// logCache is how many entries stay in memory for the followers; at the
	// usual limit of 256 KiB an entry it pins at most 16 MiB.
	logCache = 64
	// mostPending is how many bytes a leader may have appended before they are stored;
	// it waits for its disk then. What is proposed has a smaller bound of its own.
	mostPending = 4 << 20
)

// ParallelLog is the log as raft sees it: what a leader appends is stored while it is
// on its way to the others, and what comes meanwhile is stored together afterwards
// (Ongaro, "Consensus: Bridging Theory and Practice", 10.2.1).
//
// Raft stores first and sends then, and counts an entry as stored here as soon as
// StoreLogs returns. Here StoreLogs of a leader only takes it. So that nothing counts
// that no disk has:
//
//   - The answers of the others that they have stored an entry are held back until it
//     is stored here, too (patientTransport.AppendEntries, stored). A commit needs at
//     least one of them, so it needs this disk as well, exactly as before.
//   - A leader that decides alone, and one that changes who decides, stores first.
//   - Who leads no longer, and is asked whether it has an entry, answers when it is
//     stored.
//   - A store that fails ends the process (store.fail); what was not stored is as if it
//     had not been sent: nobody was told that it is committed.
type ParallelLog struct {
	*raft.LogCache // what is stored, the last of it in memory

	// shares says whether this replica leads and another one must agree. nil until raft
	// runs: then everything is stored first.
	shares atomic.Pointer[func() bool]
	newest newest // of what StoreLogs has taken

	mu      sync.Mutex // guards what follows
	changed *sync.Cond
	pending []*raft.Log // not stored yet, without holes
	bytes   int         // of their data
	failure error       // why they are not stored
	closed  bool

	writer sync.WaitGroup
}

// NewParallelLog starts the goroutine that stores, which Close ends.
func NewParallelLog(s raft.LogStore) *ParallelLog {
	cache, _ := raft.NewLogCache(logCache, s) // which fails for a size below one
	p := &ParallelLog{LogCache: cache}
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

// sharing reports whether raft, which calls, leads and cannot decide alone.
func (p *ParallelLog) sharing() bool {
	shares := p.shares.Load()
	return shares != nil && (*shares)()
}

// StoreLog implements raft.LogStore.
func (p *ParallelLog) StoreLog(log *raft.Log) error { return p.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore. Raft calls it from the one goroutine that also
// begins and ends to lead.
func (p *ParallelLog) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	defer p.newest.set(logs[len(logs)-1].Index) // when they can be read
	if !p.sharing() || slices.ContainsFunc(logs, changesMembers) {
		if err := p.WaitStored(logs[0].Index - 1); err != nil {
			return err
		}
		return p.LogCache.StoreLogs(logs) //nolint:wrapcheck // made below
	}
	bytes := 0
	for _, log := range logs {
		seal(log) // before the others read it
		bytes += len(log.Data)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.failure == nil && p.bytes >= mostPending {
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

// WaitStored returns when all that was appended up to an index is stored, or with the
// error for which it is not.
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

// fromPending gives an entry that is not stored yet, if there is one of this index.
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
	return first, err //nolint:wrapcheck // made below
}

// LastIndex implements raft.LogStore.
func (p *ParallelLog) LastIndex() (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.pending); n > 0 {
		return p.pending[n-1].Index, nil
	}
	return p.LogCache.LastIndex() //nolint:wrapcheck // made below
}

// DeleteRange implements raft.LogStore.
func (p *ParallelLog) DeleteRange(first, last uint64) error {
	if err := p.WaitStored(last); err != nil {
		return err
	}
	return p.LogCache.DeleteRange(first, last) //nolint:wrapcheck // made below
}

// write stores what is pending, all of it at a time, until there is none and the log is
// closed, or the store has failed.
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

// Close returns when nothing is pending any more. Raft no longer runs.
func (p *ParallelLog) Close() {
	p.mu.Lock()
	p.closed = true
	p.changed.Broadcast()
	p.mu.Unlock()
	p.writer.Wait()
}
