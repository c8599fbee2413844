package api

import (
	"context"
	"io"
	"math"
	"time"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/internal/backup"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Backups is what backups need beyond the state and the history.
type Backups struct {
	// Members returns the members of the cluster.
	Members func() []backup.Member
	Version string // of this build
	Wall    func() time.Time
	// HandOver hands a backup of the schedule over to the operator's command, which copies it
	// elsewhere; nil: none is set.
	HandOver func(ctx context.Context, added backup.Added) error
}

const (
	// messageBytes is how many bytes a message of a stream of bytes has.
	messageBytes = 256 << 10
	// backupSyncTimeout is how long the history may take to write what left the state.
	backupSyncTimeout = 30 * time.Second
	// backupRetryDelay is when a caller may ask again after another backup.
	backupRetryDelay = 5 * time.Second
)

// Errors of a replica that can't write a backup now.
var (
	errNoBackups  = &Error{Kind: KindBusy, RetryAfter: historyRetryDelay, Message: "this coordinator writes no backups yet"}
	errBackupRuns = &Error{Kind: KindBusy, RetryAfter: backupRetryDelay, Message: "this coordinator is writing another backup"}
)

// Barrier implements AdminService. Its row has confirmed that this replica leads.
func (a *admin) Barrier(context.Context, *dtaskv1.BarrierRequest) (*dtaskv1.BarrierResponse, error) {
	return &dtaskv1.BarrierResponse{Index: a.cfg.Machine.Index()}, nil
}

// Backup implements AdminService. A fork of the state is written while the replica continues to
// apply entries.
func (a *admin) Backup(r *dtaskv1.BackupRequest, stream grpc.ServerStreamingServer[dtaskv1.BackupResponse]) error {
	if a.cfg.Backups == nil || a.cfg.History == nil && r.GetWithHistory() {
		return errNoBackups
	}
	if !a.backups.TryAcquire(1) {
		return errBackupRuns
	}
	defer a.backups.Release(1)
	ctx, cancel := a.untilStopping(stream.Context())
	defer cancel()
	if err := a.awaitBarrier(ctx); err != nil {
		return err
	}
	out := &byteStream{ctx: ctx, what: "backup", send: func(data []byte) error { return stream.Send(&dtaskv1.BackupResponse{Data: data}) }}
	err := a.writeBackup(ctx, out, r)
	if err == nil {
		err = out.flush()
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // why nothing could be sent
	}
	return err
}

// awaitBarrier returns when this replica has applied everything that was acknowledged before,
// however long that takes.
func (s *Server) awaitBarrier(ctx context.Context) error {
	index, err := s.barrier(ctx)
	if err != nil {
		return err
	}
	return s.cfg.Machine.Await(ctx, index)
}

// writeBackup writes the state that is present now, and the jobs that have left it.
func (a *admin) writeBackup(ctx context.Context, out io.Writer, r *dtaskv1.BackupRequest) error {
	snapshot := a.cfg.Machine.Snapshot()
	defer snapshot.Release()
	if r.GetHistoryAfter() > snapshot.Index() {
		return invalid("invalid history_after %d: the state is at log index %d; it may be that of another cluster", r.GetHistoryAfter(), snapshot.Index())
	}
	if r.GetWithHistory() {
		if err := a.prepareHistory(ctx, snapshot.Index()); err != nil {
			return err
		}
	}
	state := snapshot.State()
	term, _ := state.Term()
	w, err := backup.NewWriter(yielding(ctx, out), backup.Manifest{
		ClusterID: state.ClusterID(), ServerID: a.cfg.ServerID, CreatedAt: a.cfg.Backups.Wall().UTC().Truncate(time.Millisecond), Version: a.cfg.Backups.Version,
		Index: snapshot.Index(), Term: term, Epoch: state.Epoch(), Level: uint32(state.Level()),
		Members: a.cfg.Backups.Members(), Trust: state.Trust(), History: r.GetWithHistory(), HistoryAfter: r.GetHistoryAfter(),
	})
	if err != nil {
		return err
	}
	if err := snapshot.Persist(w); err != nil {
		return err
	}
	if r.GetWithHistory() {
		// The fork is not needed any more: memory need not grow while the history is sent.
		index := snapshot.Index()
		snapshot.Release()
		if err := a.writeHistory(ctx, w, r.GetHistoryAfter(), index); err != nil {
			return err
		}
	}
	return w.Close()
}

// errHistoryIncomplete is returned for a backup with the history by a replica that lacks a
// part of it.
var errHistoryIncomplete = &Error{
	Kind: KindBusy, RetryAfter: backupRetryDelay,
	Message: "this coordinator is still fetching a part of the history from others",
}

// prepareHistory returns when the file of the history is known to be complete up to a log
// index: it is known only up to the last job that left. A backup that can't have the history
// fails before anything is sent.
func (a *admin) prepareHistory(ctx context.Context, index uint64) error {
	if a.cfg.History.Incomplete() {
		return errHistoryIncomplete
	}
	ctx, cancel := context.WithTimeout(ctx, backupSyncTimeout)
	defer cancel()
	if err := a.cfg.History.Sync(ctx, index); err != nil {
		return &Error{Kind: KindBusy, RetryAfter: backupRetryDelay, Message: "this coordinator can't write its history: " + err.Error()}
	}
	return nil
}

// writeHistory writes the jobs that have left the state after one index and up to another.
func (a *admin) writeHistory(ctx context.Context, w *backup.Writer, after, to uint64) error {
	from := history.Position{Index: after}
	if after > 0 {
		from.Job = math.MaxUint64 // all jobs of that entry are in the backup before
	}
	complete, err := a.cfg.History.Serve(ctx, from, to, func(c history.Chunk, complete bool) error {
		if !complete {
			return errHistoryIncomplete
		}
		return w.Job(backup.Chunk{Index: c.Index, Job: uint64(c.Job), Number: c.Number, Total: c.Total, Data: c.Data})
	})
	if err == nil && !complete {
		err = errHistoryIncomplete
	}
	return err
}
