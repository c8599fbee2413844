package raftnode

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/internal/durable"
)

// durableSnapshots syncs the folder of a snapshot, in which raft's own store syncs
// the files only.
type durableSnapshots struct {
	*raft.FileSnapshotStore

	dir string // of all snapshots
	// sums says that the checksum of a snapshot that is opened must be verified.
	sums func() bool
}

// Open implements raft.SnapshotStore. At the start the state machine reads the snapshot
// next, and finds out by itself whether it is what was written: then it is read once. A
// snapshot that is sent to another replica is verified first.
func (s durableSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if s.sums() {
		return s.FileSnapshotStore.Open(id) //nolint:wrapcheck // raft logs it
	}
	snapshots, err := s.List()
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // raft logs it
	}
	i := slices.IndexFunc(snapshots, func(m *raft.SnapshotMeta) bool { return m.ID == id })
	if i < 0 {
		return nil, nil, fmt.Errorf("snapshot %s is not there", id)
	}
	file, err := os.Open(filepath.Join(s.dir, filepath.Base(id), stateName)) //nolint:gosec // a name in our own folder
	if err != nil {
		return nil, nil, fmt.Errorf("opening a snapshot: %w", err)
	}
	return snapshots[i], file, nil
}

// Create implements raft.SnapshotStore. Both files of a snapshot have their names
// when it returns; the sink's Close syncs them and then the folder of all.
func (s durableSnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.FileSnapshotStore.Create(version, index, term, configuration, configurationIndex, trans)
	if err != nil {
		return nil, err
	}
	if err := durable.SyncDir(filepath.Join(s.dir, sink.ID()+tmpSuffix)); err != nil {
		return nil, errors.Join(fmt.Errorf("syncing a snapshot's folder: %w", err), sink.Cancel())
	}
	return sink, nil
}
