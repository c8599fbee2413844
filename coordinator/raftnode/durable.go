package raftnode

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"
)

// A file that is synced can still be gone after a power cut: its name is durable
// only once the folder that holds it was synced too. Neither bbolt nor raft's
// snapshot store does that for all that they make, so it is done here.

// MakeDir makes a folder and those above it that are missing, all of them durable
// when it returns.
func MakeDir(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("making folder %s: %w", path, err)
	}
	made := []string{path}
	for at := filepath.Dir(path); at != filepath.Dir(at); at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = append(made, at)
	}
	_, err = os.Stat(path)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("making folder %s: %w", path, err)
	}
	for _, at := range made {
		// A folder that was there may have been made by a process that ended
		// before this; but whoever made it may also not let us read the one above.
		if err := syncDir(filepath.Dir(at)); err != nil && fresh {
			return fmt.Errorf("making folder %s durable: %w", at, err)
		}
	}
	return nil
}

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
	if err := syncDir(filepath.Join(s.dir, sink.ID()+tmpSuffix)); err != nil {
		return nil, errors.Join(fmt.Errorf("syncing a snapshot's folder: %w", err), sink.Cancel())
	}
	return sink, nil
}
