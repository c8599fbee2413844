package cli

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/backup"
	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/internal/durable"
)

// toStdout is the file name that stands for standard output.
const toStdout = "-"

func newBackupSave(a *app) *cobra.Command {
	var s backupRequest
	var recipients []string
	var dir string
	var keep int
	cmd := &cobra.Command{
		Use:   "save FILE|-",
		Short: "Save a backup of the cluster",
		Long: `Save a backup of the cluster in FILE: its jobs with their payloads and results, keys,
workers and identities, as they are after everything that was acknowledged before. Only
admins may. The cluster keeps working; a follower writes the backup if there is one.

FILE is only there when the backup is complete and was read back without an error. Only
you can read it, and it should stay so: it has what jobs were submitted with. With -, the
backup goes to standard output; dtaskd backup verify checks it afterwards. --encrypt-to
encrypts it to public keys of age (age1…): dtaskd reads it with --identity.

Finished jobs that have left the state are included with --with-history. With --to DIR
instead of FILE, they always are, and each backup in DIR adds only those that are new: DIR
has one file for each state, and shares the files of the history. Either all of them are
encrypted, or none. Output of tasks is on
the workers and in no backup. dtaskd restore makes a new cluster of FILE or DIR.`,
		Example: `  dtaskctl backup save cluster.dtbk
  dtaskctl backup save nightly.dtbk --with-history --replace
  dtaskctl backup save cluster.dtbk --encrypt-to "$(cat backups.pub)"
  dtaskctl backup save --to /mnt/backups --keep 48
  dtaskctl backup save --to /mnt/encrypted --encrypt-to age1… --encrypt-to age1…
  dtaskctl backup save - | ssh backup 'cat > cluster.dtbk'`,
		Args: argCount(0, 1),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			var err error
			if s.to, err = backup.ParseRecipients(recipients); err != nil {
				return view{}, usagef("invalid --encrypt-to: %v", err)
			}
			switch {
			case dir != "" && (len(args) > 0 || s.replace || s.History):
				return view{}, usagef("--to replaces FILE, --replace and --with-history")
			case dir != "":
				return a.viewBackup(a.backupToSet(ctx, c, dir, s, keep))
			case len(args) == 0:
				return view{}, usagef("missing argument: name a FILE, or a directory with --to")
			case keep > 0:
				return view{}, usagef("--keep requires --to")
			case args[0] == toStdout:
				return view{}, a.backupToStdout(ctx, c, s)
			}
			return a.viewBackup(a.backupToFile(ctx, c, s, args[0]))
		}),
	}
	fl := cmd.Flags()
	fl.BoolVar(&s.History, "with-history", false, "include the finished jobs that have left the state")
	fl.BoolVar(&s.replace, "replace", false, "replace FILE if it exists")
	fl.StringArrayVar(&recipients, "encrypt-to", nil, "encrypt the backup to `RECIPIENT`, a public key of age; can be repeated")
	fl.StringVar(&dir, "to", "", "add the backup to those in `DIR`")
	bind(fl, &keep, "keep", "0", "with --to: keep the newest `N` states (0 = all)", integer[int](0, math.MaxInt32))
	return cmd
}

// A backupRequest is what to save.
type backupRequest struct {
	client.BackupOptions

	replace bool
	to      backup.Recipients // empty: it is not encrypted
}

// backupSecrecy is what the user must know about the file.
const backupSecrecy = "the backup is not encrypted and has all payloads, environments and results of jobs: keep it as secret as the cluster"

func (a *app) backupToFile(ctx context.Context, c *client.Client, s backupRequest, path string) (doc document.SavedBackup, err error) {
	file, err := a.createBackup(path, s.replace)
	if err != nil {
		return doc, err
	}
	defer file.Discard()
	if err := file.EncryptTo(s.to); err != nil {
		return doc, err
	}
	if err := c.Backup(ctx, s.BackupOptions, func() (io.Writer, error) { return &meter{a: a, to: file}, file.Restart() }); err != nil {
		return doc, err
	}
	saved, err := file.Keep(nil)
	if err != nil {
		return doc, err
	}
	return savedDocument(file.Path(), saved), nil
}

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
	return backup.CreateFile(path, partialFile)
}

// savedDocument describes a backup that was saved.
func savedDocument(path string, s backup.Saved) document.SavedBackup {
	return document.SavedBackup{
		File: path, Bytes: s.Totals.Bytes, SHA256: s.SHA256, ClusterID: s.ClusterID, ServerID: s.ServerID,
		CreatedAt: document.Time(s.CreatedAt.UnixMilli()), Index: s.Index, Level: s.Level, History: s.History, HistoryJobs: s.Totals.Jobs,
		Encrypted: s.Encrypted,
	}
}

// viewBackup is the view of a backup that was saved.
func (a *app) viewBackup(doc document.SavedBackup, err error) (view, error) {
	if err != nil {
		return view{}, err
	}
	encrypted := ", encrypted"
	if !doc.Encrypted {
		encrypted = ""
		a.note("%s", backupSecrecy)
	}
	history := "not included; --with-history does"
	switch {
	case doc.HistoryFile != "":
		history = show.Plural(doc.HistoryJobs, "new job") + " in " + doc.HistoryFile
	case doc.History:
		history = show.Plural(doc.HistoryJobs, "job")
	}
	return lines(doc,
		fmt.Sprintf("saved    %s, %s bytes%s, written by %s", doc.File, show.Count(doc.Bytes), encrypted, doc.ServerID),
		fmt.Sprintf("cluster  %s, log entry %d, feature level %d", doc.ClusterID, doc.Index, doc.Level),
		"history  "+history,
		"sha256   "+doc.SHA256), nil
}

func (a *app) backupToStdout(ctx context.Context, c *client.Client, s backupRequest) error {
	if isTerminal(a.out) || !a.textOutput() {
		return usagef("- writes the backup itself to standard output: redirect it, without -o")
	}
	out := &meter{a: a, to: a.out}
	encrypted := backup.Encrypt(out, s.to)
	if len(s.to) == 0 {
		a.note("%s", backupSecrecy)
	}
	err := c.Backup(ctx, s.BackupOptions, func() (io.Writer, error) {
		switch {
		case out.bytes > 0:
			return nil, fmt.Errorf("the connection broke after %s bytes: what is on standard output is incomplete; save the backup again", show.Count(out.bytes))
		case len(s.to) > 0:
			return encrypted, nil
		}
		return out, nil
	})
	if err == nil && len(s.to) > 0 {
		err = encrypted.Close()
	}
	return err
}

// meter reports on standard error how much was written.
type meter struct {
	a     *app
	to    io.Writer
	bytes int64
	last  int64 // Unix nanoseconds of the last report, or of the first byte
}

// Write implements io.Writer.
func (m *meter) Write(b []byte) (int, error) {
	n, err := m.to.Write(b)
	m.bytes += int64(n)
	now := m.a.now().UnixNano()
	switch {
	case m.last == 0:
		m.last = now
	case now-m.last >= int64(lineInterval):
		m.last = now
		m.a.note("saving: %s bytes", show.Count(m.bytes))
	}
	if err != nil {
		return n, fmt.Errorf("writing the backup: %w", durable.Cause(err))
	}
	return n, nil
}
