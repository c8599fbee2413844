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
	cluster string // of the newest file; empty without one
	// encrypted reports whether the newest file is; the others are like it. to are those who
	// can read what is added.
	encrypted bool
	to        Recipients
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

// MixedError is returned for a directory whose backups are encrypted, and the one that would
// be added is not, or the other way round: each one needs the history of those before.
type MixedError struct {
	Path      string
	Encrypted bool // the backups in it are
}

// Error implements error.
func (e *MixedError) Error() string {
	if e.Encrypted {
		return fmt.Sprintf("the backups in %s are encrypted: encrypt this one, too, or use another directory", e.Path)
	}
	return fmt.Sprintf("the backups in %s are not encrypted: use another directory for those that are", e.Path)
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
	d.Set = ParseSet(names)
	var newest string
	switch {
	case len(d.States) > 0:
		newest = d.States[len(d.States)-1].Name
	case len(d.Segments) > 0:
		newest = d.Segments[0].Name // the states were removed
	default:
		return d, nil
	}
	h, err := ReadHead(filepath.Join(path, newest))
	d.cluster, d.encrypted = h.ClusterID, h.Encrypted
	return d, err
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

// Create begins a backup with the history after HistoryTo, which Add adds. It and what Add
// makes of it are encrypted to recipients, unless these are empty. The error is a *MixedError
// if the backups in the directory are not like that.
func (d *Directory) Create(to Recipients) (*File, error) {
	if d.cluster != "" && d.encrypted != (len(to) > 0) {
		return nil, &MixedError{d.path, d.encrypted}
	}
	file, err := CreateFile(filepath.Join(d.path, "backup"), d.prefix)
	if err != nil {
		return nil, err
	}
	file.Scratch = true // Add copies its parts
	if err := file.EncryptTo(to); err != nil {
		file.Discard()
		return nil, err
	}
	d.to = to
	return file, nil
}

// Add adds the two parts of a backup with the history after HistoryTo. The segment gets its
// name first: a state without its segments can't be restored.
func (d *Directory) Add(whole *File, check Check) (added Added, err error) {
	if err := whole.finish(); err != nil {
		return added, fmt.Errorf("writing %s: %w", whole.Path(), durable.Cause(err))
	}
	all, err := whole.Reread(nil)
	if err != nil {
		return added, err
	}
	if d.cluster != "" && all.ClusterID != d.cluster {
		return added, &OtherClusterError{d.path, d.cluster, all.ClusterID}
	}
	ofState, ofSegment := all.Manifest, all.Manifest
	ofState.History, ofState.HistoryAfter, ofState.HistoryTo = false, 0, all.HistoryAfter
	if all.Totals.Jobs > 0 {
		ofState.HistoryTo = all.Index
	}
	state, err := d.create(NewStateFile(all.Index).Name, ofState)
	if err != nil {
		return added, err
	}
	defer state.Discard()
	segment, err := d.create(NewSegment(all.HistoryAfter, all.Index).Name, ofSegment)
	if err != nil {
		return added, err
	}
	defer segment.Discard()
	if err := split(whole, part{state, ofState}, part{segment, ofSegment}); err != nil {
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
	d.cluster, d.encrypted = added.ClusterID, added.Encrypted
	d.States = slices.DeleteFunc(d.States, func(s StateFile) bool { return s.Index == added.Index }) // replaced
	d.States = append(d.States, NewStateFile(added.Index))
	return added, nil
}

// create begins a file of the directory.
func (d *Directory) create(name string, m Manifest) (*File, error) {
	file, err := CreateFile(filepath.Join(d.path, name), d.prefix)
	if err != nil {
		return nil, err
	}
	if err := file.encryptTo(d.to, &m); err != nil {
		file.Discard()
		return nil, err
	}
	return file, nil
}

// part is a file that has a part of a backup, and its manifest.
type part struct {
	io.Writer
	Manifest
}

// split writes the state and the history of a backup into files of their own.
func split(whole *File, state, segment part) error {
	r, _, err := whole.reader(io.Discard)
	if err != nil {
		return err
	}
	history, err := NewWriter(segment, segment.Manifest)
	if err != nil {
		return err
	}
	now, err := NewWriter(state, state.Manifest)
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

// Remove removes a state by its path, if the directory has it. The segments stay, because newer
// states need them.
func (d *Directory) Remove(state string) error {
	at := slices.IndexFunc(d.States, func(s StateFile) bool { return filepath.Join(d.path, s.Name) == state })
	if at < 0 {
		return nil
	}
	d.States = slices.Delete(d.States, at, at+1)
	if err := os.Remove(state); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing an old backup: %w", err)
	}
	return nil
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
