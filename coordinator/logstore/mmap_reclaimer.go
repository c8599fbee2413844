package logstore

import (
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/internal/mmap"
)

// releaseAfter is after how many bytes of entries the memory of the mapped raft.db is
// given back.
const releaseAfter = 8 << 20

// released is raft-boltdb's store, with the memory of its mapped file given back now
// and then. bbolt maps the file anew in transactions that write, and when it closes: mu
// keeps these apart from that.
type mmapReclaimer struct {
	Backend
	path string

	mu     sync.RWMutex // held for writing while memory is given back
	passed atomic.Int64 // bytes since then
}

// StoreLogs implements Backend.
func (r *mmapReclaimer) StoreLogs(logs []*raft.Log) error {
	err := r.writes(func() error { return r.Backend.StoreLogs(logs) })
	bytes := 0
	for _, log := range logs {
		bytes += len(log.Data)
	}
	if r.passed.Add(int64(bytes)) >= releaseAfter {
		r.release()
	}
	return err
}

// DeleteRange implements Backend. It looks at all that it deletes.
func (r *mmapReclaimer) DeleteRange(first, last uint64) error {
	err := r.writes(func() error { return r.Backend.DeleteRange(first, last) })
	r.release()
	return err
}

func (r *mmapReclaimer) release() {
	r.passed.Store(0)
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = mmap.Release(r.path) // else the system takes it when it needs it
}

// Set implements Backend.
func (r *mmapReclaimer) Set(key, value []byte) error {
	return r.writes(func() error { return r.Backend.Set(key, value) })
}

// Close implements Backend.
func (r *mmapReclaimer) Close() error { return r.writes(r.Backend.Close) }

func (r *mmapReclaimer) writes(do func() error) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return do()
}
