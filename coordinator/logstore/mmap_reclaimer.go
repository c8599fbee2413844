package logstore

import (
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/internal/mmap"
)

// releaseInterval is after how many bytes of entries the memory of the mapped raft.db
// is released.
const releaseInterval = 8 << 20

// mmapReclaimer is raft-boltdb's store, which releases the memory of its mapped file
// from time to time. bbolt replaces the mapping in write transactions and when it
// closes; mu excludes a release meanwhile.
type mmapReclaimer struct {
	Backend
	path string

	mu      sync.RWMutex // held for writing while memory is released
	written atomic.Int64 // bytes since the last release
}

// StoreLogs implements Backend.
func (r *mmapReclaimer) StoreLogs(logs []*raft.Log) error {
	err := r.exclude(func() error { return r.Backend.StoreLogs(logs) })
	bytes := 0
	for _, log := range logs {
		bytes += len(log.Data)
	}
	if r.written.Add(int64(bytes)) >= releaseInterval {
		r.release()
	}
	return err
}

// DeleteRange implements Backend. It reads everything that it deletes.
func (r *mmapReclaimer) DeleteRange(first, last uint64) error {
	err := r.exclude(func() error { return r.Backend.DeleteRange(first, last) })
	r.release()
	return err
}

func (r *mmapReclaimer) release() {
	r.written.Store(0)
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = mmap.Release(r.path) // otherwise the system reclaims it under pressure
}

// Set implements Backend.
func (r *mmapReclaimer) Set(key, value []byte) error {
	return r.exclude(func() error { return r.Backend.Set(key, value) })
}

// Close implements Backend.
func (r *mmapReclaimer) Close() error { return r.exclude(r.Backend.Close) }

func (r *mmapReclaimer) exclude(do func() error) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return do()
}
