package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/dtask/dtask/internal/backup"
	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/internal/durable"
)

// A backupFile is a file that gets its name when it is complete, so that every backup under
// its name can be restored.
type backupFile struct {
	path    string
	replace bool
	temp    *os.File
}

// open creates the file under a temporary name, with mode 0600. The caller calls discard.
func (f *backupFile) open(a *app) (err error) {
	if f.path == "" {
		return usagef("FILE must not be empty")
	}
	f.path = a.created(f.path)
	switch info, err := os.Lstat(f.path); {
	case err == nil && info.IsDir():
		return usagef("%s is a directory: name a file in it", f.path)
	case err == nil && !f.replace:
		return usagef("%s exists: choose another file, or use --replace", f.path)
	}
	f.temp, err = os.CreateTemp(filepath.Dir(f.path), ".dtaskctl-*")
	if err != nil {
		return fmt.Errorf("creating %s: %w", f.path, pathCause(err))
	}
	return nil
}

// restart empties the file: an attempt begins.
func (f *backupFile) restart() error {
	_, err := f.temp.Seek(0, io.SeekStart)
	if err == nil {
		err = f.temp.Truncate(0)
	}
	return err
}

// Write implements io.Writer.
func (f *backupFile) Write(b []byte) (int, error) { return f.temp.Write(b) }

// keep reads the file back, and gives it its name if it is complete.
func (f *backupFile) keep() (document.SavedBackup, error) {
	if err := f.temp.Sync(); err != nil {
		return document.SavedBackup{}, fmt.Errorf("writing %s: %w", f.path, pathCause(err))
	}
	doc, err := f.reread()
	if err != nil {
		return doc, err
	}
	err = f.temp.Close()
	if err == nil {
		err = os.Rename(f.temp.Name(), f.path)
	}
	if err != nil {
		return doc, fmt.Errorf("writing %s: %w", f.path, pathCause(err))
	}
	f.temp = nil
	return doc, durable.SyncDir(filepath.Dir(f.path))
}

// reread reads the whole file, and describes it if it is complete.
func (f *backupFile) reread() (doc document.SavedBackup, err error) {
	sum, totals := sha256.New(), backup.Totals{}
	_, err = f.temp.Seek(0, io.SeekStart)
	var r *backup.Reader
	if err == nil {
		r, err = backup.NewReader(io.TeeReader(f.temp, sum))
	}
	if err == nil {
		totals, err = r.Finish(nil)
	}
	if err != nil {
		return doc, fmt.Errorf("reading %s back: %w", f.path, pathCause(err))
	}
	m := r.Manifest()
	return document.SavedBackup{
		File: f.path, Bytes: totals.Bytes, SHA256: hex.EncodeToString(sum.Sum(nil)), ClusterID: m.ClusterID, ServerID: m.ServerID,
		CreatedAt: document.Time(m.CreatedAt.UnixMilli()), Index: m.Index, Level: m.Level, History: m.History, HistoryJobs: totals.Jobs,
	}, nil
}

// discard removes the temporary file unless it was kept.
func (f *backupFile) discard() {
	if f.temp != nil {
		_ = errors.Join(f.temp.Close(), os.Remove(f.temp.Name())) // nothing is lost
	}
}
