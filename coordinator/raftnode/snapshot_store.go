package raftnode

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/internal/durable"
)

// Names on disk. Changing one loses existing data.
const (
	snapshotsDir = "snapshots"
	tmpSuffix    = ".tmp"
	stateName    = "state.bin" // in the directory of a snapshot
)

// OwnsSnapshots reports whether a name in a data directory is that of the snapshots.
func OwnsSnapshots(name string) bool { return name == snapshotsDir }

// snapshotRetain is how many snapshots are kept: if the newest cannot be read, raft
// restores the one before it.
const snapshotRetain = 2

// snapshotStore is raft's file store, whose snapshots are durable: raft syncs their
// files only, and not the directory that has their names.
type snapshotStore struct {
	*raft.FileSnapshotStore

	dir string // of all snapshots
	// verified reports that Open must verify a snapshot's checksum.
	verified func() bool
	// accept is called with the header and the end of a leader's snapshot before it is
	// finished. Its error removes the snapshot. nil: any.
	accept func(header snapshotHeader, last uint64) error

	mu   sync.Mutex // guards last
	last snapshotEnd
}

// snapshotEnd is the last entry of a snapshot, and the snapshot's size.
type snapshotEnd struct {
	index, term uint64
	bytes       uint64
}

// openSnapshots opens the snapshots of a data directory, after it removed those that
// are unfinished.
func (n *Node) openSnapshots(log hclog.Logger, contents *logstore.Contents) (*snapshotStore, error) {
	if removed, err := removeUnfinished(n.cfg.DataDir); err != nil {
		return nil, err
	} else if removed > 0 {
		n.log.Info("removed unfinished snapshots", "count", removed)
	}
	dir := filepath.Join(n.cfg.DataDir, snapshotsDir)
	if err := durable.MakeDir(dir); err != nil { // also makes the name of raft.db durable
		return nil, err
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(n.cfg.DataDir, snapshotRetain, log)
	if err != nil {
		return nil, fmt.Errorf("opening snapshots: %w", err)
	}
	s := &snapshotStore{FileSnapshotStore: files, dir: dir, verified: n.isRunning, accept: n.checkHistory}
	if err := s.check(n.cfg.DataDir, contents); err != nil {
		return nil, err
	}
	return s, nil
}

// check finds the newest snapshot. It prevents raft from starting with an empty state
// because it skips snapshots that it cannot read.
func (s *snapshotStore) check(dataDir string, contents *logstore.Contents) error {
	names, err := snapshotNames(dataDir)
	if err != nil || len(names) == 0 {
		return err
	}
	readable, err := s.List() // the newest first
	if err != nil {
		return fmt.Errorf("listing snapshots: %w", err)
	}
	if len(readable) > 0 {
		s.last = snapshotEnd{readable[0].Index, readable[0].Term, uint64(readable[0].Size)} //nolint:gosec // not negative
	}
	if len(readable) == 0 && contents.First != 1 {
		return &logstore.DamageError{
			Path:   s.dir,
			Detail: fmt.Sprintf("none of its %d snapshots can be read, and the log has only entries %d to %d", len(names), contents.First, contents.Last),
		}
	}
	return nil
}

// Open implements raft.SnapshotStore. At the start the state machine reads the snapshot
// next and verifies it by itself, so it is read once. A snapshot that is sent to
// another replica is verified first. The content is an io.Seeker, so that the transport
// can send it again.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if s.verified() {
		_, content, err := s.FileSnapshotStore.Open(id)
		if err != nil {
			return nil, nil, err //nolint:wrapcheck // raft logs it
		}
		if err := content.Close(); err != nil {
			return nil, nil, fmt.Errorf("verifying snapshot: %w", err)
		}
	}
	snapshots, err := s.List()
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // raft logs it
	}
	i := slices.IndexFunc(snapshots, func(m *raft.SnapshotMeta) bool { return m.ID == id })
	if i < 0 {
		return nil, nil, fmt.Errorf("snapshot %s does not exist", id)
	}
	file, err := os.Open(filepath.Join(s.dir, filepath.Base(id), stateName)) //nolint:gosec // a name in the data directory
	if err != nil {
		return nil, nil, fmt.Errorf("opening snapshot: %w", err)
	}
	return snapshots[i], file, nil
}

// Create implements raft.SnapshotStore. Both files of a snapshot have durable names
// when it returns; the sink's Close syncs the files and then the directory of all
// snapshots.
func (s *snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.FileSnapshotStore.Create(version, index, term, configuration, configurationIndex, trans)
	if err != nil {
		return nil, err
	}
	if err := durable.SyncDir(filepath.Join(s.dir, sink.ID()+tmpSuffix)); err != nil {
		return nil, errors.Join(fmt.Errorf("syncing snapshot directory: %w", err), sink.Cancel())
	}
	return &snapshotSink{SnapshotSink: sink, store: s, end: snapshotEnd{index: index, term: term}}, nil
}

// snapshotSink checks the header of a leader's snapshot before the snapshot is finished,
// and tells the store of each that is.
type snapshotSink struct {
	raft.SnapshotSink

	store *snapshotStore
	end   snapshotEnd
	own   bool   // it has this replica's state; set before anything is written
	head  []byte // what was written first
}

// Write implements io.Writer.
func (s *snapshotSink) Write(p []byte) (int, error) {
	s.head = append(s.head, p[:min(len(p), maxHeader-len(s.head))]...)
	s.end.bytes += uint64(len(p))
	return s.SnapshotSink.Write(p) //nolint:wrapcheck // raft logs it
}

// Close implements raft.SnapshotSink.
func (s *snapshotSink) Close() error {
	if s.store.accept != nil && !s.own {
		header, err := readHeader(bytes.NewReader(s.head))
		if err == nil {
			err = s.store.accept(header, s.end.index)
		}
		if err != nil {
			return errors.Join(err, s.Cancel())
		}
	}
	if err := s.SnapshotSink.Close(); err != nil {
		return err //nolint:wrapcheck // raft logs it
	}
	s.store.finished(s.end)
	return nil
}

// finished records the end of a snapshot that is complete.
func (s *snapshotStore) finished(end snapshotEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cmp.Or(cmp.Compare(end.term, s.last.term), cmp.Compare(end.index, s.last.index)) > 0 {
		s.last = end
	}
}

// newest returns the last entry of the newest readable snapshot, and its term; 0
// without one. It reads no file: it is called for each request of a leader.
func (s *snapshotStore) newest() (index, term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.index, s.last.term
}

// size returns the bytes of the newest readable snapshot; 0 without one.
func (s *snapshotStore) size() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.bytes
}

// snapshotNames lists the finished snapshots of a data directory, readable or not.
func snapshotNames(dataDir string) ([]string, error) {
	finished, _, err := listSnapshots(dataDir)
	return finished, err
}

// listSnapshots lists the finished and unfinished snapshots of a data directory,
// readable or not.
func listSnapshots(dataDir string) (finished, unfinished []string, err error) {
	entries, err := os.ReadDir(filepath.Join(dataDir, snapshotsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("listing snapshots: %w", err)
	}
	for _, e := range entries {
		switch {
		case !e.IsDir():
		case strings.HasSuffix(e.Name(), tmpSuffix):
			unfinished = append(unfinished, e.Name())
		default:
			finished = append(finished, e.Name())
		}
	}
	return finished, unfinished, nil
}

// removeUnfinished removes what a crash left of snapshots that were being written or
// deleted: raft would never remove them, and they would fill the disk. It removes
// nothing because it is unreadable: a snapshot that lacks a file is removed only if
// snapshotRetain newer ones are complete, which is when raft had started to delete it.
func removeUnfinished(dataDir string) (removed int, err error) {
	finished, remove, err := listSnapshots(dataDir)
	if err != nil {
		return 0, err
	}
	slices.SortFunc(finished, func(a, b string) int { return compareSnapshots(b, a) })
	complete := 0
	for _, name := range finished {
		switch {
		case isComplete(filepath.Join(dataDir, snapshotsDir, name)):
			complete++
		case complete >= snapshotRetain:
			remove = append(remove, name)
		}
	}
	for _, name := range remove {
		if err := os.RemoveAll(filepath.Join(dataDir, snapshotsDir, name)); err != nil {
			return removed, fmt.Errorf("removing unfinished snapshot: %w", err)
		}
		removed++
	}
	return removed, nil
}

// compareSnapshots orders names of snapshots, TERM-INDEX-TIME, by age.
func compareSnapshots(a, b string) int {
	var x, y [3]uint64
	_, _ = fmt.Sscanf(a, "%d-%d-%d", &x[0], &x[1], &x[2]) // an unknown name is the oldest
	_, _ = fmt.Sscanf(b, "%d-%d-%d", &y[0], &y[1], &y[2])
	return cmp.Or(slices.Compare(x[:], y[:]), cmp.Compare(a, b))
}

// isComplete reports whether a snapshot has both files, readable or not.
func isComplete(path string) bool {
	for _, name := range []string{"meta.json", stateName} {
		if _, err := os.Stat(filepath.Join(path, name)); errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}
