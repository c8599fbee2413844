package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/backup"
	"github.com/dtask/dtask/internal/document"
)

// backupToSet adds a backup to those in a directory, and keeps the newest states; 0 = all. Of
// s, the recipients apply.
func (a *app) backupToSet(ctx context.Context, c *client.Client, path string, s backupRequest, keep int) (doc document.SavedBackup, err error) {
	dir, err := backup.OpenDirectory(a.created(path), partialFile)
	if err != nil {
		return doc, err
	}
	whole, err := dir.Create(s.to)
	if err != nil {
		return doc, err
	}
	defer whole.Discard()
	o := client.BackupOptions{History: true, HistoryAfter: dir.HistoryTo()}
	if err := c.Backup(ctx, o, func() (io.Writer, error) { return &meter{a: a, to: whole}, whole.Restart() }); err != nil {
		return doc, err
	}
	added, err := dir.Add(whole, nil)
	if err != nil {
		return doc, err
	}
	doc = savedDocument(added.State, added.Saved)
	doc.History, doc.HistoryFile = true, added.Segment
	if err := dir.Prune(keep); err != nil {
		return doc, fmt.Errorf("--keep: %w", err)
	}
	return doc, nil
}
