package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/backup"
	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/internal/durable"
)

// A backupSet is a directory to which each backup adds a state and the jobs that have left
// the state since the backup before.
type backupSet struct {
	dir  string
	keep int // states; 0 = all

	found   backup.Set
	cluster string // of the newest state; empty without one
}

// read lists what the directory has.
func (s *backupSet) read(a *app) error {
	s.dir = a.created(s.dir)
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("opening directory %s: %w", s.dir, pathCause(err))
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	s.found = backup.ParseSet(names)
	return nil
}

// open is read for a directory that another backup is added to.
func (s *backupSet) open(a *app) error {
	if err := s.read(a); err != nil || len(s.found.States) == 0 {
		return err
	}
	m, err := manifestOf(filepath.Join(s.dir, s.found.States[len(s.found.States)-1].Name))
	s.cluster = m.ClusterID
	return err
}

// manifestOf reads the manifest of a backup.
func manifestOf(path string) (backup.Manifest, error) {
	file, err := os.Open(path) //nolint:gosec // in the user's directory
	if err != nil {
		return backup.Manifest{}, err
	}
	defer func() { _ = file.Close() }() // read only
	r, err := backup.NewReader(file)
	if err != nil {
		return backup.Manifest{}, fmt.Errorf("%s: %w: move it away", path, err)
	}
	return r.Manifest(), nil
}

// backupToSet saves a backup in a set.
func (a *app) backupToSet(ctx context.Context, c *client.Client, set *backupSet) (doc document.SavedBackup, err error) {
	if err := set.open(a); err != nil {
		return doc, err
	}
	whole := &backupFile{path: filepath.Join(set.dir, "whole"), replace: true}
	if err := whole.open(a); err != nil {
		return doc, err
	}
	defer whole.discard()
	o := client.BackupOptions{History: true, HistoryAfter: set.found.HistoryTo()}
	if err := c.Backup(ctx, o, func() (io.Writer, error) { return &meter{a: a, to: whole}, whole.restart() }); err != nil {
		return doc, err
	}
	if doc, err = set.add(a, whole, o.HistoryAfter); err != nil {
		return doc, err
	}
	return doc, set.prune()
}

// add adds the two parts of a whole backup. The segment gets its name first: a state without
// its segments can't be restored.
func (s *backupSet) add(a *app, whole *backupFile, after uint64) (doc document.SavedBackup, err error) {
	if doc, err = whole.reread(); err != nil {
		return doc, err
	}
	if s.cluster != "" && doc.ClusterID != s.cluster {
		return doc, withHint(fmt.Errorf("--to %s has backups of cluster %s, not of %s", s.dir, s.cluster, doc.ClusterID), "use one directory for each cluster")
	}
	jobs, to := doc.HistoryJobs, after
	if jobs > 0 {
		to = doc.Index
	}
	state := &backupFile{path: filepath.Join(s.dir, backup.NewStateFile(doc.Index).Name), replace: true}
	segment := &backupFile{path: filepath.Join(s.dir, backup.NewSegment(after, doc.Index).Name), replace: true}
	defer state.discard()
	defer segment.discard()
	for _, f := range []*backupFile{state, segment} {
		if err := f.open(a); err != nil {
			return doc, err
		}
	}
	if err := split(whole.temp, state, segment, to); err != nil {
		return doc, fmt.Errorf("adding to %s: %w", s.dir, pathCause(err))
	}
	if jobs > 0 {
		if doc, err = segment.keep(); err != nil {
			return doc, err
		}
		doc.HistoryFile = segment.path
	}
	added := doc.HistoryFile
	if doc, err = state.keep(); err != nil {
		return doc, err
	}
	doc.History, doc.HistoryJobs, doc.HistoryFile = true, jobs, added
	s.found.States = append(s.found.States, backup.NewStateFile(doc.Index))
	return doc, nil
}

// split writes the state and the history of a backup into files of their own. to is the log
// index up to which the segments of the set have the history then.
func split(whole io.ReadSeeker, state, segment io.Writer, to uint64) error {
	if _, err := whole.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r, err := backup.NewReader(whole)
	if err != nil {
		return err
	}
	part := r.Manifest() // of the segment
	history, err := backup.NewWriter(segment, part)
	if err != nil {
		return err
	}
	part.History, part.HistoryAfter, part.HistoryTo = false, 0, to
	now, err := backup.NewWriter(state, part)
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

// prune removes the oldest states.
func (s *backupSet) prune() error {
	if s.keep == 0 || len(s.found.States) <= s.keep {
		return nil
	}
	for _, old := range s.found.States[:len(s.found.States)-s.keep] {
		if err := os.Remove(filepath.Join(s.dir, old.Name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("--keep: %w", err)
		}
	}
	return durable.SyncDir(s.dir)
}
