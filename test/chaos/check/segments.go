package check

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	raftwal "github.com/hashicorp/raft-wal"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

const (
	segmentsDirectory = "wal"      // beside the store, if the entries are in segments of raft-wal
	segmentsKey       = "Segments" // in the store: their list, as JSON after a checksum
)

// segments reads a log that is stored in segments of raft-wal.
func (l *replicaLog) segments(store *raftboltdb.BoltStore, faults *list) error {
	value, err := store.Get([]byte(segmentsKey))
	if err != nil {
		return fmt.Errorf("reading segment list of %s: %w", l.Name, err)
	}
	var listed types.PersistentState
	if err := json.Unmarshal(value[min(checksumSize, len(value)):], &listed); err != nil {
		return fmt.Errorf("reading segment list of %s: %w", l.Name, err)
	}
	files := segment.NewFiler(filepath.Join(l.Dir, segmentsDirectory), walfs.New())
	for i, info := range listed.Segments {
		err := files.DumpSegment(info.BaseIndex, info.ID, 0, 0, func(_ types.SegmentInfo, e types.LogEntry) (bool, error) {
			if e.Index < info.MinIndex || !info.SealTime.IsZero() && e.Index > info.MaxIndex {
				return true, nil // removed at either end
			}
			entry := &raft.Log{}
			if err := (&raftwal.BinaryCodec{}).Decode(e.Data, entry); err != nil || entry.Index != e.Index || !sealed(entry) {
				faults.add(Damaged, l.Name, "entry %d (stored as %d) of term %d does not match its checksum: %v", e.Index, entry.Index, entry.Term, err)
			}
			if l.first == 0 {
				l.first = e.Index
			}
			l.last, l.entries[e.Index] = e.Index, entry
			return true, nil
		})
		if err != nil {
			return fmt.Errorf("reading segment %d of %s: %w", info.ID, l.Name, err)
		}
		if i+1 < len(listed.Segments) && l.last != info.MaxIndex {
			faults.add(Damaged, l.Name, "segment %d is readable up to entry %d, want %d", info.ID, l.last, info.MaxIndex)
		}
	}
	return nil
}
