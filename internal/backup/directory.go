package backup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dtask/dtask/internal/durable"
)

// A Directory is a directory with a Set, to which each backup adds a state and the jobs that
// have left the state since the backup before. One process at a time may add to it under one
// prefix.
type Directory struct {
	Set

	path    string
	prefix  string // of temporary files
	cluster string // of the newest state; empty without one
}

// Added is what a backup has added to a Directory.
type Added struct {
	Saved // of the state; Totals.Jobs counts those in Segment

	State   string // path
	Segment string // path; empty if no job has left the state since the backup before
	Bytes   uint64 // of both files
}

// OtherClusterError is returned for a directory that has the backups of another cluster.
type OtherClusterError struct{ Path, Has, Cluster string }

// Error implements error.
func (e *OtherClusterError) Error() string {
	return fmt.Sprintf("%s has backups of cluster %s, not of %s: use one directory for each cluster", e.Path, e.Has, e.Cluster)
}

// OpenDirectory reads what a directory has, which must exist. Files that are being added have
// temporary names that begin with prefix.
func OpenDirectory(path, prefix string) (*Directory, error) {
	d := &Directory{path: path, prefix: prefix}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("opening directory %s: %w", path, durable.Cause(err))
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if d.Set = ParseSet(names); len(d.States) == 0 {
		return d, nil
	}
	m, err := ReadManifest(filepath.Join(path, d.States[len(d.States)-1].Name))
	d.cluster = m.ClusterID
	return d, err
}

// ReadManifest reads the manifest of a file.
func ReadManifest(path string) (Manifest, error) {
	file, err := os.Open(path) //nolint:gosec // in the user's directory
	if err != nil {
		return Manifest{}, err
	}
	defer func() { _ = file.Close() }() // read only
	r, err := NewReader(file)
	if err != nil {
		return Manifest{}, fmt.Errorf("%s: %w: move it away", path, err)
	}
	return r.Manifest(), nil
}

// Clean removes the files that a process with the same prefix has left behind.
func (d *Directory) Clean() error {
	entries, err := os.ReadDir(d.path)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), d.prefix) {
			err = errors.Join(err, os.Remove(filepath.Join(d.path, e.Name())))
		}
	}
	if err != nil {
		return fmt.Errorf("removing what an earlier backup has left behind: %w", err)
	}
	return nil
}

// Create begins a backup with the history after HistoryTo, which Add adds.
func (d *Directory) Create() (*File, error) {
	return CreateFile(filepath.Join(d.path, "backup"), d.prefix)
}

// Add adds the two parts of a backup with the history after HistoryTo. The segment gets its
// name first: a state without its segments can't be restored.
func (d *Directory) Add(whole *File, check Check) (added Added, err error) {
	all, err := whole.Reread(nil)
	if err != nil {
		return added, err
	}
	if d.cluster != "" && all.ClusterID != d.cluster {
		return added, &OtherClusterError{d.path, d.cluster, all.ClusterID}
	}
	after := all.HistoryAfter
	to := after
	if all.Totals.Jobs > 0 {
		to = all.Index
	}
	state, err := CreateFile(filepath.Join(d.path, NewStateFile(all.Index).Name), d.prefix)
	if err != nil {
		return added, err
	}
	defer state.Discard()
	segment, err := CreateFile(filepath.Join(d.path, NewSegment(after, all.Index).Name), d.prefix)
	if err != nil {
		return added, err
	}
	defer segment.Discard()
	if err := split(whole, state, segment, to); err != nil {
		return added, fmt.Errorf("adding to %s: %w", d.path, durable.Cause(err))
	}
	if all.Totals.Jobs > 0 {
		part, err := segment.Keep(nil)
		if err != nil {
			return added, err
		}
		added.Segment, added.Bytes = segment.Path(), part.Totals.Bytes
	}
	if added.Saved, err = state.Keep(check); err != nil {
		return added, err
	}
	added.State = state.Path()
	added.Bytes += added.Totals.Bytes
	added.Totals.Jobs = all.Totals.Jobs
	d.cluster = added.ClusterID
	d.States = slices.DeleteFunc(d.States, func(s StateFile) bool { return s.Index == added.Index }) // replaced
	d.States = append(d.States, NewStateFile(added.Index))
	return added, nil
}

// split writes the state and the history of a backup into files of their own. to is the log
// index up to which the segments of the set have the history then.
func split(whole io.ReadSeeker, state, segment io.Writer, to uint64) error {
	if _, err := whole.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r, err := NewReader(whole)
	if err != nil {
		return err
	}
	part := r.Manifest() // of the segment
	history, err := NewWriter(segment, part)
	if err != nil {
		return err
	}
	part.History, part.HistoryAfter, part.HistoryTo = false, 0, to
	now, err := NewWriter(state, part)
	if err != nil {
		return err
	}
	if _, err := io.Copy(now, r.State()); err != nil {
		return err
	}
	if _, err := r.Finish(history.Job); err != nil {
		return err
	}
	return errors.Join(now.Close(), history.Close())
}

// Prune removes the oldest states beyond the newest ones, if keep is not 0. One that can't be
// removed does not keep it from removing others. The segments stay, because newer states need
// them.
func (d *Directory) Prune(keep int) error {
	if keep == 0 || len(d.States) <= keep {
		return nil
	}
	var errs []error
	for _, old := range d.States[:len(d.States)-keep] {
		if err := os.Remove(filepath.Join(d.path, old.Name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	d.States = d.States[len(d.States)-keep:]
	if err := errors.Join(append(errs, durable.SyncDir(d.path))...); err != nil {
		return fmt.Errorf("removing old backups: %w", err)
	}
	return nil
}
