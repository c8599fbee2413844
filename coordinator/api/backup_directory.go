package api

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/backup"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// WriteBackup implements AdminService.
func (a *admin) WriteBackup(ctx context.Context, r *dtaskv1.WriteBackupRequest) (*dtaskv1.WriteBackupResponse, error) {
	run, err := a.Server.WriteBackup(ctx, r.GetTo(), r.GetKeep())
	if err != nil {
		return nil, err
	}
	return &dtaskv1.WriteBackupResponse{Run: run}, nil
}

// WriteBackup writes a backup of this replica, with the history, into the directory that a
// file:// URL names, encrypted to the keys in it, and removes the oldest states beyond keep; 0 = none. The directory must
// exist. The backup gets its name after its state was read back and built in memory, and
// is then handed over. After an error the directory has no incomplete file under the name of
// a backup. It waits up to a minute for the end of another backup.
func (s *Server) WriteBackup(ctx context.Context, to string, keep uint32) (*dtaskv1.BackupRun, error) {
	target, err := backup.ParseTarget(to)
	if err != nil {
		return nil, invalid("invalid to %s: %v", quote(to), err)
	}
	if s.cfg.Backups == nil || s.cfg.History == nil {
		return nil, errNoBackups
	}
	ctx, cancel := s.untilStopping(ctx)
	defer cancel()
	if err := s.awaitOtherBackup(ctx); err != nil {
		return nil, err
	}
	defer s.backups.Release(1)
	a := &admin{Server: s}
	if err := a.awaitBarrier(ctx); err != nil {
		return nil, err
	}
	added, err := a.addTo(ctx, target, int(keep))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && !isOwn(err):
		return nil, &Error{Kind: KindRefused, Message: err.Error()} // the operator must see it
	case err != nil:
		return nil, err
	}
	return &dtaskv1.BackupRun{
		ServerId: s.cfg.ServerID, To: to, File: filepath.Base(added.State), Index: added.Index, Bytes: added.Bytes,
	}, nil
}

// otherBackupTimeout is how long a backup of the schedule waits for the end of another one:
// that of a caller, or one whose leader was lost and which is being read back.
const otherBackupTimeout = time.Minute

// awaitOtherBackup returns when this replica may write a backup. The caller releases backups.
func (s *Server) awaitOtherBackup(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, otherBackupTimeout)
	defer cancel()
	err := s.backups.Acquire(limited, 1)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return errBackupRuns
	}
	return nil
}

// isOwn reports whether an error already says what it means to the caller.
func isOwn(err error) bool {
	_, own := errors.AsType[*Error](err)
	return own
}

// addTo adds a backup to a directory.
func (a *admin) addTo(ctx context.Context, target backup.Target, keep int) (added backup.Added, err error) {
	// No other replica of any cluster has this prefix, so what has it was left behind by this
	// one.
	dir, err := backup.OpenDirectory(target.Dir, ".dtaskd-"+a.cfg.ClusterID()+"-"+a.cfg.ServerID+"@")
	if err == nil {
		err = dir.Clean()
	}
	if err != nil {
		return added, err
	}
	whole, err := dir.Create(target.To)
	if err != nil {
		return added, err
	}
	defer whole.Discard()
	request := &dtaskv1.BackupRequest{WithHistory: true, HistoryAfter: dir.HistoryTo()}
	if err := a.writeBackup(ctx, &writerUntil{ctx, whole}, request); err != nil {
		return added, err
	}
	if added, err = dir.Add(whole, a.checkState); err != nil {
		return added, err
	}
	if ctx.Err() != nil {
		return added, nil // its schedule may have been replaced: the next run removes old backups
	}
	if err := a.handOver(ctx, dir, added); err != nil {
		return added, err
	}
	// A run that failed would be repeated, and add another backup each time.
	if err := dir.Prune(keep); err != nil {
		a.cfg.Logger.WarnContext(ctx, "old backups not removed", "dir", target.Dir, "err", err)
	}
	return added, nil
}

// handOver hands a backup over. If that fails, the run fails and is repeated, which adds another
// backup: it takes the place of the one before that was not handed over, and no older ones are
// removed, so that an hour without a network neither fills the disk nor displaces the backups
// of two days.
func (a *admin) handOver(ctx context.Context, dir *backup.Directory, added backup.Added) error {
	if a.cfg.Backups.HandOver == nil {
		return nil
	}
	before := a.notHandedOver
	if a.notHandedOver = added.State; before != "" && before != added.State {
		if err := dir.Remove(before); err != nil {
			a.cfg.Logger.WarnContext(ctx, "old backups not removed", "path", before, "err", err)
		}
	}
	if err := a.cfg.Backups.HandOver(ctx, added); err != nil {
		return err
	}
	a.notHandedOver = ""
	return nil
}

// checkState builds the state of a backup in memory, as a restore does.
func (a *admin) checkState(state io.Reader) error {
	machine := fsm.NewMachine()
	machine.SupportLevel(a.cfg.Machine.MaxLevel())
	return machine.RestoreToRewrite(state)
}

// writerUntil is a writer that fails after a context.
type writerUntil struct {
	ctx context.Context //nolint:containedctx // of the call: io.Writer has none
	to  io.Writer
}

// Write implements io.Writer.
func (w *writerUntil) Write(b []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.to.Write(b)
}
