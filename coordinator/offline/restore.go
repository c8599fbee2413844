package offline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/backup"
	"github.com/dtask/dtask/internal/durable"
)

// RestoreConfig is what Restore needs.
type RestoreConfig struct {
	File string // the backup
	// Identities is the file with the keys that can read an encrypted one; empty: none.
	Identities string

	DataDir string // of the first coordinator of the new cluster: empty, or missing
	Server  string // server id of that coordinator
	Address string // HOST:PORT that other replicas dial
	Kind    logstore.Kind
	// Expect is the cluster that the backup must be of; empty = any.
	Expect string
	// KeepAtMostOnce makes at-most-once tasks that have not ended run, although they may
	// have started. Otherwise they end as lost.
	KeepAtMostOnce bool
	KeepTokens     bool // see fsm.Restoration
	DropWorkers    bool // see fsm.Restoration
	// Revocations are files of the audit logs of the cluster that was backed up, or
	// directories with such files. The revocations in them are repeated.
	Revocations []string
	Logger      *slog.Logger
}

// Restored is what Restore made. Its JSON form is part of the stable surface.
type Restored struct {
	DataDir    string `json:"data_dir"`
	File       string `json:"file"`
	CreatedAt  string `json:"created_at"` // of the backup
	OldCluster string `json:"old_cluster_id"`
	NewCluster string `json:"new_cluster_id"`
	Server     Member `json:"server"` // the only member
	Jobs       int    `json:"jobs"`   // in the state
	History    uint64 `json:"history_jobs"`
	Epoch      uint64 `json:"epoch"`
	Requeued   int    `json:"requeued"` // tasks that were running
	// LostTasks are at-most-once tasks that ended as lost, as JOB/TASK.
	LostTasks         []string `json:"lost_tasks"`
	DroppedIdentities int      `json:"dropped_identities"`
	DroppedJoinTokens int      `json:"dropped_join_tokens"`
	DroppedWorkers    int      `json:"dropped_workers"`
	Identities        int      `json:"identities"` // that were kept
	Workers           int      `json:"workers"`    // that were kept
	// Revoked counts the revocations of RestoreConfig.Revocations that took access away,
	// RevokedBefore those that the backup has, too. UnknownRevocations are of access that
	// was given after the backup, as "token 7", "join token 3" or "worker w1".
	Revoked            int      `json:"revoked"`
	RevokedBefore      int      `json:"revoked_before"`
	UnknownRevocations []string `json:"unknown_revocations"`
	// IncompleteLines are the last lines of audit logs that a crash left incomplete, as
	// FILE:LINE: whether they recorded a revocation is unknown.
	IncompleteLines []string `json:"incomplete_lines"`
}

// restoredMark is in the names of directories that Restore is building.
const restoredMark = ".restored-"

// Restore makes the data directory of a new cluster from a backup. The directory gets its
// name when it is complete, after the whole backup was read and checked; until then, and
// after an error, it is as it was.
func Restore(ctx context.Context, cfg RestoreConfig, now time.Time) (done *Restored, err error) {
	cfg.DataDir = filepath.Clean(cfg.DataDir)
	if err := checkEmpty(cfg.DataDir); err != nil {
		return nil, err
	}
	b, err := openBackup(cfg.File, cfg.Identities)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if id := b.Manifest().ClusterID; cfg.Expect != "" && id != cfg.Expect {
		return nil, refused("%s is a backup of cluster %s, not of %s (--expect)", cfg.File, id, cfg.Expect)
	}
	parent := filepath.Dir(cfg.DataDir)
	if err := durable.MakeDir(parent); err != nil {
		return nil, err
	}
	fresh := cfg.DataDir + restoredMark + now.UTC().Format("20060102T150405.000Z")
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return nil, fmt.Errorf("creating the data directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(fresh))
		}
	}()
	done, err = build(ctx, cfg, b, fresh)
	if err != nil {
		return nil, err
	}
	err = putInPlace(fresh, cfg.DataDir)
	return done, err
}

// putInPlace gives a directory its name, which nothing or an empty directory has.
func putInPlace(fresh, path string) error {
	err := os.Remove(path) // fails if it is not empty
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return fmt.Errorf("putting the data directory into place (a mount point cannot be replaced: restore into a directory on it): %w", err)
	}
	return durable.SyncDir(filepath.Dir(path))
}

// checkEmpty refuses a directory that contains something.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("reading --data-dir: %w", err)
	case len(entries) > 0:
		return refused("%s is not empty, it has %s: a backup is only restored as a new cluster, into an empty directory; "+
			"to give up what is there, move it away", dir, entries[0].Name())
	}
	return nil
}

// build writes the new directory. identity.json is last: without it the directory is
// incomplete.
func build(ctx context.Context, cfg RestoreConfig, b *openedBackup, dir string) (*Restored, error) {
	id := datadir.NewIdentity(cfg.Server, datadir.NewIdentity("", "").Instance) // 128 random bits each
	server := Member{ID: cfg.Server, Address: cfg.Address, Voter: true}
	machine, changed, path := (*fsm.Machine)(nil), fsm.Restored{}, filepath.Join(dir, historyName)
	incomplete := []string{}
	jobs, err := readBoth(ctx, cfg, b, path, func(from *openedBackup, read func()) (err error) {
		if machine, err = from.readState(); err != nil {
			return err
		}
		read()
		revocations, err := readRevocations(cfg.Revocations, b.Manifest(), machine)
		if err != nil {
			return err
		}
		incomplete = append(incomplete, revocations.incomplete...)
		changed = machine.RestoreBackup(fsm.Restoration{
			Recovery:   fsm.Recovery{ClusterID: id.ClusterID, Server: cfg.Server, Instance: id.Instance, KeepAtMostOnce: cfg.KeepAtMostOnce},
			KeepTokens: cfg.KeepTokens, DropWorkers: cfg.DropWorkers, Revocations: revocations.found,
		})
		return raftnode.Found(raftnode.Founding{
			Dir: dir, Kind: cfg.Kind, Server: raftnode.Server(server), Index: changed.Index, Term: b.Manifest().Term + 1, Snapshot: machine.Snapshot(),
		})
	})
	if err != nil {
		return nil, err
	}
	m, importTo := b.Manifest(), uint64(0)
	if jobs > 0 {
		importTo = m.Index
	}
	if err := history.Create(path, changed.Index, importTo); err != nil {
		return nil, err
	}
	if err := complete(dir, id, changed.Index); err != nil {
		return nil, err
	}
	r := &Restored{
		DataDir: cfg.DataDir, File: b.file.Name(), CreatedAt: m.CreatedAt.UTC().Format(time.RFC3339Nano), OldCluster: m.ClusterID, NewCluster: id.ClusterID,
		Server: server, History: jobs, Requeued: len(changed.Requeued), LostTasks: []string{},
		DroppedIdentities: changed.Identities, DroppedJoinTokens: changed.JoinTokens, DroppedWorkers: changed.Workers,
		Revoked: changed.Applied, RevokedBefore: changed.Before, UnknownRevocations: []string{}, IncompleteLines: incomplete,
	}
	for _, unknown := range changed.Unknown {
		r.UnknownRevocations = append(r.UnknownRevocations, revocationText(unknown))
	}
	machine.Read(func(s *fsm.State, _ uint64) { r.describe(s, changed.Lost) })
	return r, nil
}

func (r *Restored) describe(s *fsm.State, lost []fsm.TaskRef) {
	r.Epoch, r.Identities, r.Workers = s.Epoch(), s.IdentityCount(), s.WorkerCount()
	for range s.Jobs(0) {
		r.Jobs++
	}
	for _, t := range lost {
		r.LostTasks = append(r.LostTasks, fmt.Sprintf("%d/%s", t.Job, s.Name(t)))
	}
}

// IsBackupDamage reports whether an error means that a backup is incomplete, damaged, or no
// backup.
func IsBackupDamage(err error) bool {
	return errors.Is(err, backup.ErrDamaged) || errors.Is(err, backup.ErrTruncated) || errors.Is(err, backup.ErrNotBackup)
}
