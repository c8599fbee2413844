package cli

import (
	"os"

	"github.com/dtask/dtask/internal/backup"
	"github.com/dtask/dtask/internal/document"
)

// partialBackup begins the temporary names of backups that are being saved.
const partialBackup = ".dtaskctl-"

// createBackup begins the file of a backup. The caller calls Discard.
func (a *app) createBackup(path string, replace bool) (*backup.File, error) {
	if path == "" {
		return nil, usagef("FILE must not be empty")
	}
	path = a.created(path)
	switch info, err := os.Lstat(path); {
	case err == nil && info.IsDir():
		return nil, usagef("%s is a directory: name a file in it", path)
	case err == nil && !replace:
		return nil, usagef("%s exists: choose another file, or use --replace", path)
	}
	return backup.CreateFile(path, partialBackup)
}

// savedDocument describes a backup that was saved.
func savedDocument(path string, s backup.Saved) document.SavedBackup {
	return document.SavedBackup{
		File: path, Bytes: s.Totals.Bytes, SHA256: s.SHA256, ClusterID: s.ClusterID, ServerID: s.ServerID,
		CreatedAt: document.Time(s.CreatedAt.UnixMilli()), Index: s.Index, Level: s.Level, History: s.History, HistoryJobs: s.Totals.Jobs,
	}
}
