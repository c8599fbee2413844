package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync/atomic"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// Raft keeps the commit index in memory only: after a restart a replica does not know
// which entries of its log are committed, and would let any leader replace them. So the
// store persists the highest index that is known to be committed, without a write of
// its own while entries arrive: the last entry of each batch is stored with it, behind
// its checksum in raft.Log.Extensions.
//
//	stored extensions    checksum of the entry, committed index 8, checksum 4
//
// The second checksum covers the committed index and the entry's index. Both leave the
// entry when it is read, so no other replica sees them. While no entries arrive,
// StoreCommitted writes the index to the stable store. Changing this breaks existing
// logs.
const committedLen = 8 + 4

// keyCommitted is the key of the committed index in the stable store.
var keyCommitted = []byte("CommittedIndex")

// committedLog is a Backend that persists the committed index, and asks before it
// deletes entries.
type committedLog struct {
	Backend

	known     func() uint64                  // raft's commit index; nil: unknown
	mayDelete func(first, last uint64) error // see Config.MayDelete; nil: anything
	stored    atomic.Uint64                  // persisted with an entry or in the stable store
	inKey     atomic.Uint64                  // persisted in the stable store
}

// committed returns the highest index that this replica knows to be committed.
func (c *committedLog) committed() uint64 {
	if c.known == nil {
		return c.stored.Load()
	}
	return max(c.stored.Load(), c.known())
}

// StoreLogs implements Backend. It changes none of logs, which the followers read.
func (c *committedLog) StoreLogs(logs []*raft.Log) error {
	index := c.committed()
	if index > 0 && len(logs) > 0 {
		last := *logs[len(logs)-1]
		last.Extensions = appendCommitted(last.Extensions, last.Index, index)
		logs = slices.Clone(logs)
		logs[len(logs)-1] = &last
	}
	if err := c.Backend.StoreLogs(logs); err != nil {
		return err //nolint:wrapcheck // Store explains a Backend's errors
	}
	raise(&c.stored, index)
	return nil
}

// GetLog implements Backend.
func (c *committedLog) GetLog(index uint64, log *raft.Log) error {
	if err := c.Backend.GetLog(index, log); err != nil {
		return err //nolint:wrapcheck // as above
	}
	committed, err := takeCommitted(log)
	raise(&c.stored, committed)
	return err
}

// takeCommitted removes the committed index from a stored entry, and returns it; 0 if
// the entry has none.
func takeCommitted(log *raft.Log) (committed uint64, err error) {
	if len(log.Extensions) != checksumLen+committedLen {
		return 0, nil // Verify finds what else may be wrong
	}
	committed = binary.BigEndian.Uint64(log.Extensions[checksumLen:])
	got, want := binary.BigEndian.Uint32(log.Extensions[checksumLen+8:]), committedSum(log.Index, committed)
	if got != want {
		return 0, fmt.Errorf("its committed index has checksum %08x, want %08x", got, want)
	}
	log.Extensions = log.Extensions[:checksumLen:checksumLen]
	return committed, nil
}

// DeleteRange implements Backend. The last entries may be the only ones that have the
// committed index, so it is stored elsewhere before they are deleted.
func (c *committedLog) DeleteRange(first, last uint64) error {
	if c.mayDelete != nil {
		if err := c.mayDelete(first, last); err != nil {
			return err
		}
	}
	end, err := c.LastIndex()
	if err == nil && last >= end {
		err = c.store()
	}
	if err != nil {
		return err
	}
	return c.Backend.DeleteRange(first, last) //nolint:wrapcheck // as above
}

// store writes the committed index to the stable store, unless it has it.
func (c *committedLog) store() error {
	index := c.committed()
	if index <= c.inKey.Load() {
		return nil
	}
	value := binary.BigEndian.AppendUint64(nil, index)
	if err := c.Set(keyCommitted, sealValue(keyCommitted, value)); err != nil {
		return err //nolint:wrapcheck // as above
	}
	raise(&c.inKey, index)
	raise(&c.stored, index)
	return nil
}

// load reads the committed index from the stable store.
func (c *committedLog) load() error {
	stored, err := c.Get(keyCommitted)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil
	}
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	value, problem := openValue(keyCommitted, stored)
	if problem != "" || len(value) != 8 {
		return &DamageError{Path: FileName, Detail: fmt.Sprintf("%s is not readable: %s", keyCommitted, problem)}
	}
	index := binary.BigEndian.Uint64(value)
	raise(&c.inKey, index)
	raise(&c.stored, index)
	return nil
}

func appendCommitted(extensions []byte, entry, committed uint64) []byte {
	out := make([]byte, 0, checksumLen+committedLen)
	out = binary.BigEndian.AppendUint64(append(out, extensions...), committed)
	return binary.BigEndian.AppendUint32(out, committedSum(entry, committed))
}

func committedSum(entry, committed uint64) uint32 {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], entry)
	binary.BigEndian.PutUint64(b[8:], committed)
	return crc32.Checksum(b[:], castagnoli)
}

// raise sets a number that only grows.
func raise(n *atomic.Uint64, to uint64) {
	for {
		if old := n.Load(); old >= to || n.CompareAndSwap(old, to) {
			return
		}
	}
}

// Committed returns the highest index that was known to be committed when the replica
// stopped, as far as it was persisted. It reads the whole log.
func (r *Reader) Committed() (uint64, error) {
	index, err := r.number(keyCommitted)
	if err != nil {
		return 0, err
	}
	r.committed = max(r.committed, index)
	err = r.Entries(r.contents.First, func(*raft.Log) error { return nil })
	return r.committed, err
}

// Committed returns the highest index that this replica knows to be committed, or knew
// when it last stopped.
func (s *Store) Committed() uint64 { return s.committed.committed() }

// PersistedCommitted returns the highest committed index that a restart would find.
func (s *Store) PersistedCommitted() uint64 { return s.committed.stored.Load() }

// StoreCommitted persists the committed index, in a write of its own, unless it is
// persisted.
func (s *Store) StoreCommitted() error {
	if s.Committed() <= s.PersistedCommitted() {
		return nil
	}
	return s.call("storing the committed index", s.committed.store)
}
