package check

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/fsm"
)

// Names and formats of a replica's files, defined here a second time so that a change
// in dtaskd is detected.
const (
	storeFile      = "raft.db"
	snapshotFolder = "snapshots"
	snapshotHead   = 8 + 8 + 8 + 8 + 4 // magic, index, term, first index and number of the terms that follow
	snapshotTerm   = 8 + 8 + 8 + 4     // term, first and last command, checksum
	snapshotSum    = 4                 // at the end of the header
	kindKey        = "LogStore"        // in the store: where its entries are, after a checksum
	kindBolt       = "bolt"            // in the store itself, in chunks
	kindWAL        = "wal"             // in segments of raft-wal
	checksumSize   = 5                 // of a value in the store
	chunkSize      = 16_000            // bytes of data of each chunk but the last, which is shorter
	chunkBits      = 16                // bits of a key that are the number of a chunk
)

// A Replica is one replica's stopped data directory.
type Replica struct {
	Name string
	Dir  string
}

// replicaLog is the contents of its log.
type replicaLog struct {
	Replica
	first, last uint64
	entries     map[uint64]*raft.Log
}

// Logs compares the directories of stopped replicas: each entry matches its
// checksum; entries at equal indexes are equal up to the last one on which two
// replicas agree; and snapshot and log of each lead to the same digests. Depth
// reports what was compared.
func Logs(replicas []Replica) ([]Fault, Depth, error) {
	var faults list
	var depth Depth
	logs := make([]*replicaLog, 0, len(replicas))
	for _, r := range replicas {
		l, err := open(r, &faults)
		if err != nil {
			return nil, depth, err
		}
		depth.Entries += len(l.entries)
		logs = append(logs, l)
	}
	for i, a := range logs {
		for _, b := range logs[i+1:] {
			depth.Compared += match(a, b, &faults)
		}
	}
	digests := make(map[uint64]map[uint64][]string) // index → digest → replicas
	for _, l := range logs {
		replayed, err := l.replay(common(logs), &faults)
		if err != nil {
			return nil, depth, err
		}
		depth.Replayed += replayed.applied
		depth.Snapshots += replayed.snapshots
		depth.Quotas += replayed.quotas
		for _, m := range replayed.marks {
			if digests[m.Index] == nil {
				digests[m.Index] = make(map[uint64][]string)
			}
			digests[m.Index][m.Digest] = append(digests[m.Index][m.Digest], l.Name)
		}
	}
	for _, index := range slices.Sorted(maps.Keys(digests)) {
		depth.Digests++
		if len(digests[index]) > 1 {
			faults.add(Diverged, fmt.Sprintf("index %d", index), "replayed digests are %x", digests[index])
			break // all later ones differ too
		}
	}
	return faults, depth, nil
}

// Depth counts what Logs checked.
type Depth struct {
	Entries   int // in all logs
	Compared  int // pairs of entries at one index
	Replayed  int // entries applied again
	Snapshots int // restored
	Digests   int // indexes at which digests were compared
	Quotas    int // starts in queues with a quota or a pause
}

// String formats the depth as one line.
func (d Depth) String() string {
	return fmt.Sprintf("%d entries verified, %d pairs compared, %d snapshots restored, %d entries replayed, digests compared at %d indexes, %d starts compared with quotas", d.Entries, d.Compared, d.Snapshots, d.Replayed, d.Digests, d.Quotas)
}

// common returns the last index that all logs have with the same term.
func common(logs []*replicaLog) uint64 {
	if len(logs) == 0 {
		return 0
	}
	last := logs[0].last
	for _, l := range logs {
		last = min(last, l.last)
	}
	for ; last > 0; last-- {
		same := true
		for _, l := range logs {
			e := l.entries[last]
			if e == nil {
				return last // compacted in one of them: a snapshot covers it
			}
			same = same && e.Term == logs[0].entries[last].Term
		}
		if same {
			break
		}
	}
	return last
}

func open(r Replica, faults *list) (*replicaLog, error) {
	store, err := raftboltdb.New(raftboltdb.Options{
		Path: filepath.Join(r.Dir, storeFile), BoltOptions: &bbolt.Options{ReadOnly: true, Timeout: time.Second},
	})
	if err != nil {
		return nil, fmt.Errorf("opening log of %s: %w", r.Name, err)
	}
	defer func() { _ = store.Close() }() // read only
	l := &replicaLog{Replica: r, entries: make(map[uint64]*raft.Log)}
	var firstErr, lastErr error
	l.first, firstErr = store.FirstIndex()
	l.last, lastErr = store.LastIndex()
	kind, kindErr := store.Get([]byte(kindKey))
	if l.last == 0 && errors.Is(kindErr, raftboltdb.ErrKeyNotFound) {
		return l, errors.Join(firstErr, lastErr) // a new store
	}
	if err := errors.Join(firstErr, lastErr, kindErr); err != nil {
		return nil, fmt.Errorf("reading log of %s: %w", r.Name, err)
	}
	switch string(kind[min(checksumSize, len(kind)):]) {
	case kindWAL:
		err := l.segments(store, faults)
		return l, err
	case kindBolt:
		l.first, l.last = l.first>>chunkBits, l.last>>chunkBits
	default:
		return nil, fmt.Errorf("log of %s: unknown kind %q", r.Name, kind)
	}
	if l.last == 0 {
		return l, nil
	}
	hole := false
	for index := l.first; index <= l.last; index++ {
		var entry raft.Log
		if err := readChunks(store, index, &entry); errors.Is(err, raft.ErrLogNotFound) {
			if !hole { // reported once
				faults.add(Damaged, r.Name, "entry %d and later ones are missing between %d and %d", index, l.first, l.last)
			}
			hole = true
			continue
		} else if err != nil {
			return nil, fmt.Errorf("reading entry %d of %s: %w", index, r.Name, err)
		}
		hole = false
		if entry.Index != index || !sealed(&entry) {
			faults.add(Damaged, r.Name, "entry %d (stored as %d) of term %d does not match its checksum", index, entry.Index, entry.Term)
		}
		l.entries[index] = &entry
	}
	return l, nil
}

// readChunks reads an entry that is stored in chunks.
func readChunks(store *raftboltdb.BoltStore, index uint64, entry *raft.Log) error {
	key := index << chunkBits
	if err := store.GetLog(key, entry); err != nil {
		return err //nolint:wrapcheck // compared with raft's own
	}
	if entry.Index == key {
		entry.Index = index
	}
	for last := len(entry.Data); last == chunkSize; {
		key++
		var chunk raft.Log
		if err := store.GetLog(key, &chunk); err != nil {
			return err //nolint:wrapcheck // as above
		}
		last = len(chunk.Data)
		entry.Data = append(entry.Data, chunk.Data...)
	}
	return nil
}

// sealed reports whether an entry matches the checksum in its extensions: version 1,
// then CRC-32C over index, term, type and data. The last entry of a batch also has the
// committed index, in 12 bytes.
func sealed(e *raft.Log) bool {
	if n := len(e.Extensions); n != 5 && n != 17 || e.Extensions[0] != 1 {
		return false
	}
	head := binary.BigEndian.AppendUint64(nil, e.Index)
	head = binary.BigEndian.AppendUint64(head, e.Term)
	sum := crc32.Checksum(append(append(head, byte(e.Type)), e.Data...), crc32.MakeTable(crc32.Castagnoli))
	return binary.BigEndian.Uint32(e.Extensions[1:5]) == sum
}

// match checks the Log Matching Property: below the last index at which both have an
// entry of the same term, all entries are equal.
func match(a, b *replicaLog, faults *list) (compared int) {
	low, high := max(a.first, b.first), min(a.last, b.last)
	agreed := high
	for agreed >= low && agreed > 0 {
		if x, y := a.entries[agreed], b.entries[agreed]; x != nil && y != nil && x.Term == y.Term {
			break
		}
		agreed--
	}
	if agreed < low && high >= low {
		faults.add(Diverged, a.Name+" and "+b.Name, "both have entries %d to %d, but no term is equal", low, high)
		return 0
	}
	for index := low; index <= agreed && index > 0; index++ {
		x, y := a.entries[index], b.entries[index]
		if x == nil || y == nil {
			continue // reported before
		}
		compared++
		if x.Term != y.Term || x.Type != y.Type || !bytes.Equal(x.Data, y.Data) {
			faults.add(Diverged, a.Name+" and "+b.Name, "entry %d differs: term %d type %s %d bytes, and term %d type %s %d bytes; they agree again at %d",
				index, x.Term, x.Type, len(x.Data), y.Term, y.Type, len(y.Data), agreed)
			return compared
		}
	}
	return compared
}

// replayed is the result of one replica's directory.
type replayed struct {
	applied, snapshots, quotas int
	marks                      []fsm.Mark
}

// replay restores the newest snapshot and applies the log after it, up to an index.
// Every snapshot must lead to the same digest, so older ones are replayed, too.
func (l *replicaLog) replay(until uint64, faults *list) (replayed, error) {
	var out replayed
	starts, err := snapshots(l.Dir)
	if err != nil {
		return out, err
	}
	if l.first <= 1 {
		starts = append(starts, "") // from the first entry
	}
	for _, path := range starts {
		if _, err := os.Stat(filepath.Join(path, "state.bin")); out.snapshots > 0 && path != "" && errors.Is(err, os.ErrNotExist) {
			continue // an old one, whose removal was interrupted
		}
		machine := fsm.NewMachine()
		if path != "" {
			if err := restore(machine, path); err != nil {
				faults.add(Damaged, l.Name, "snapshot %s: %v", filepath.Base(path), err)
				continue
			}
			out.snapshots++
			if machine.Index()+1 < l.first {
				continue // the log after it is compacted: a newer one covers it
			}
		}
		judge := newQuotas(l.Name, machine)
		for index := max(machine.Index()+1, l.first); index <= min(until, l.last); index++ {
			entry := l.entries[index]
			if entry == nil {
				break
			}
			if entry.Type != raft.LogCommand {
				continue
			}
			result := machine.Apply(index, entry.Data)
			if halt, ok := result.(error); ok {
				faults.add(Diverged, l.Name, "entry %d cannot be applied: %v", index, halt)
				break
			}
			out.applied++
			if applied, ok := result.(fsm.Applied); ok && applied.Rejected == fsm.Accepted {
				out.quotas += judge.applied(index, entry.Data, faults)
			}
		}
		out.marks = append(out.marks, machine.Marks(0)...)
	}
	return out, nil
}

// snapshots returns the directories of finished snapshots, newest first.
func snapshots(dir string) ([]string, error) {
	found, err := os.ReadDir(filepath.Join(dir, snapshotFolder))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing snapshots: %w", err)
	}
	var paths []string
	for _, e := range found {
		if e.IsDir() && filepath.Ext(e.Name()) != ".tmp" {
			paths = append(paths, filepath.Join(dir, snapshotFolder, e.Name()))
		}
	}
	slices.SortFunc(paths, func(a, b string) int { return cmp.Or(slices.Compare(numbers(b), numbers(a)), cmp.Compare(b, a)) })
	return paths, nil
}

// numbers parses term, index and time from the name of a snapshot.
func numbers(path string) []uint64 {
	n := make([]uint64, 3)
	_, _ = fmt.Sscanf(filepath.Base(path), "%d-%d-%d", &n[0], &n[1], &n[2]) // a foreign name is the oldest
	return n
}

func restore(machine *fsm.Machine, path string) error {
	file, err := os.Open(filepath.Join(path, "state.bin"))
	if err != nil {
		return fmt.Errorf("opening snapshot: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	var head [snapshotHead]byte
	_, err = io.ReadFull(file, head[:])
	if err == nil {
		terms := binary.BigEndian.Uint32(head[snapshotHead-4:])
		_, err = io.CopyN(io.Discard, file, int64(terms)*snapshotTerm+snapshotSum)
	}
	if err != nil {
		return fmt.Errorf("reading head of snapshot: %w", err)
	}
	return machine.Restore(file) //nolint:wrapcheck // the error is complete
}
