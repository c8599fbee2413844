package raftnode

import (
	"fmt"

	"github.com/dtask/dtask/coordinator/logstore"
)

// Inspection is what Inspect found in a data directory.
type Inspection struct {
	// HasState reports that it contains raft state: a log, a vote, a later term or a
	// snapshot.
	HasState bool
	// Last is the index of the last entry that the log or a snapshot contains.
	Last uint64

	log       *logstore.Contents
	snapshots int
}

// Inspect reads the data directory dir, which must not be in use. It returns an error
// if something cannot be read, or if the entries are in another log store than want. It
// changes nothing.
func Inspect(dir string, want logstore.Kind) (*Inspection, error) {
	snapshots, err := snapshotNames(dir)
	if err != nil {
		return nil, err
	}
	contents, err := logstore.Inspect(dir)
	if err != nil {
		return nil, err
	}
	f := &Inspection{HasState: len(snapshots) > 0 || !contents.Empty(), Last: contents.Last, log: contents, snapshots: len(snapshots)}
	if err := contents.CheckKind(dir, want, f.HasState); err != nil {
		return nil, err
	}
	for _, name := range snapshots {
		var term, index uint64
		if _, err := fmt.Sscanf(name, "%d-%d-", &term, &index); err == nil {
			f.Last = max(f.Last, index)
		}
	}
	return f, nil
}
