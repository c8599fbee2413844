package cli

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/internal/backup"
	"github.com/dtask/dtask/internal/document"
)

func newBackupList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list DIR",
		Short: "List the backups in a directory",
		Long: `List the backups that dtaskctl backup save --to, or a schedule of backups, has added to
DIR, the newest first, and whether the files with their history are there. It needs no
cluster. dtaskd backup verify reads and checks the newest one.`,
		Example: `  dtaskctl backup list /mnt/backups
  dtaskctl backup list /mnt/backups -o json`,
		Args: oneArg,
		RunE: func(_ *cobra.Command, args []string) error {
			path := a.created(args[0])
			dir, err := backup.OpenDirectory(path, partialFile)
			if err != nil {
				return err
			}
			doc := document.Backups{Dir: path, Backups: []document.Backup{}}
			for _, state := range slices.Backward(dir.States) {
				b, err := describeBackup(path, &dir.Set, state)
				if err != nil {
					return err
				}
				doc.Backups = append(doc.Backups, b)
			}
			return a.print(view{doc: doc, text: func(p *show.Printer) { printBackups(p, doc.Backups) }})
		},
	}
}

// describeBackup describes a state in a directory and the segments that it needs.
func describeBackup(dir string, set *backup.Set, state backup.StateFile) (document.Backup, error) {
	m, err := backup.ReadHead(filepath.Join(dir, state.Name))
	if err != nil {
		return document.Backup{}, err
	}
	b := document.Backup{
		File: state.Name, ClusterID: m.ClusterID, CreatedAt: document.Time(m.CreatedAt.UnixMilli()), Index: m.Index, Encrypted: m.Encrypted, HistoryFiles: []string{},
	}
	chain, complete := set.Chain(m.HistoryTo)
	b.HistoryComplete = complete
	for _, name := range append(namesOfSegments(chain), state.Name) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return b, err
		}
		b.Bytes += info.Size()
	}
	b.HistoryFiles = append(b.HistoryFiles, namesOfSegments(chain)...)
	return b, nil
}

func namesOfSegments(chain []backup.Segment) (names []string) {
	for _, segment := range chain {
		names = append(names, segment.Name)
	}
	return names
}

func printBackups(p *show.Printer, list []document.Backup) {
	t := show.NewTable("FILE", "CREATED", "LOG ENTRY", "BYTES", "HISTORY", "ENCRYPTED")
	for _, b := range list {
		history := show.Plural(len(b.HistoryFiles), "file")
		if !b.HistoryComplete {
			history = "INCOMPLETE"
		}
		encrypted := "no"
		if b.Encrypted {
			encrypted = "yes"
		}
		t.Row(b.File, b.CreatedAt, decimal(b.Index), show.Count(b.Bytes), history, encrypted)
	}
	p.Table(t)
}
