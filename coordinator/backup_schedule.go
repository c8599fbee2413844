package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/timescale"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// backupCheckInterval is how often the leader reads the schedule of backups.
	backupCheckInterval = time.Second
	// minBackupTimeout is how long the replica that writes a backup has at least. It has
	// the interval of the schedule if that is longer.
	minBackupTimeout = 10 * time.Minute
	// backupAnswerTimeout is how long members may take to answer before one is chosen.
	backupAnswerTimeout = 500 * time.Millisecond
	// maxBackupError is how many bytes of an error are recorded.
	maxBackupError = 512
)

// scheduledBackups is the leader's duty that has a backup written when the schedule wants
// one. Only the end of a run is recorded: a run whose leader or writer is gone has no record,
// and is due for the next leader.
type scheduledBackups struct {
	serverID string
	machine  *fsm.Machine
	members  func() []raftnode.Server
	// answering returns those of some members that answer now.
	answering func(ctx context.Context, members []raftnode.Server) []raftnode.Server
	recorder  func() backupRecorder // the nil interface until the term has a sequencer
	// write makes a member write a backup into a directory. It returns when the backup was
	// read back.
	write func(ctx context.Context, member raftnode.Server, schedule fsm.BackupSchedule) (*dtaskv1.BackupRun, error)
	wall  func() time.Time
	scale timescale.Factor
	// alarms shows that the last run failed.
	alarms *membership.Alarms
	log    *slog.Logger
}

// backupRecorder records the end of a run.
type backupRecorder interface {
	RecordBackup(ctx context.Context, run fsm.BackupRun) error
}

var _ backupRecorder = (*sequencer.Sequencer)(nil)

// backupDuty makes the duty.
func (r *replica) backupDuty() *scheduledBackups {
	return &scheduledBackups{
		serverID: r.dir.serverID, machine: r.machine, members: r.servers, answering: r.answering, write: r.writeBackup,
		recorder: func() backupRecorder { return orNil[backupRecorder](r.leadership.term.Load()) },
		wall:     r.cfg.Wall, scale: r.cfg.TimeScale, alarms: r.alarms, log: r.log,
	}
}

// writeBackup makes a member write a backup.
func (r *replica) writeBackup(ctx context.Context, member raftnode.Server, s fsm.BackupSchedule) (*dtaskv1.BackupRun, error) {
	if member.ID == r.dir.serverID {
		return r.writeOwnBackup(ctx, s)
	}
	conn, err := r.peers.Conn(member.Address)
	if err != nil {
		return nil, err
	}
	got, err := dtaskv1.NewAdminServiceClient(conn).WriteBackup(ctx, &dtaskv1.WriteBackupRequest{To: s.To, Keep: s.Keep})
	if st, failed := status.FromError(err); failed && st.Code() == codes.Unavailable && len(st.Details()) == 0 { // not its own error
		return nil, fmt.Errorf("%s does not answer at %s, or has stopped", member.ID, member.Address)
	}
	return got.GetRun(), err
}

// answering returns the members that answer now.
func (r *replica) answering(ctx context.Context, members []raftnode.Server) (list []raftnode.Server) {
	for i, answer := range r.peers.IdentifyAll(ctx, members, r.dir.serverID, backupAnswerTimeout) {
		if answer != nil {
			list = append(list, members[i])
		}
	}
	return list
}

// writeOwnBackup writes a backup of this replica. A directory that hangs must not keep the
// leader from ending its term: the goroutine that writes is left behind then, and no other
// backup can begin before it ends.
func (r *replica) writeOwnBackup(ctx context.Context, s fsm.BackupSchedule) (run *dtaskv1.BackupRun, err error) {
	done := make(chan struct{})
	var got *dtaskv1.BackupRun
	var failed error
	go func() {
		defer close(done)
		got, failed = r.api.WriteBackup(ctx, s.To, s.Keep)
	}()
	select {
	case <-done:
		return got, failed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Name implements leader.Duty.
func (*scheduledBackups) Name() string { return "backups" }

// Run implements leader.Duty.
func (b *scheduledBackups) Run(ctx context.Context, _ uint64) error {
	defer b.alarms.Clear(membership.AlarmBackup)
	tick := time.NewTicker(b.scale.Scale(backupCheckInterval))
	defer tick.Stop()
	var ended *fsm.BackupRun // a run that is not recorded yet
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		recorder := b.recorder()
		if recorder == nil || ctx.Err() != nil {
			continue
		}
		if ended == nil {
			ended = b.runIfDue(ctx)
		}
		if ended != nil && b.record(ctx, recorder, *ended) {
			ended = nil
		}
	}
}

// runIfDue has a backup written if the schedule wants one now, and returns the run; nil if it
// does not, or if the term has ended meanwhile.
func (b *scheduledBackups) runIfDue(ctx context.Context) *fsm.BackupRun {
	var (
		due          time.Time
		schedule     fsm.BackupSchedule
		last, failed fsm.BackupRun
		set, failing bool
	)
	b.machine.Read(func(st *fsm.State, _ uint64) {
		due, set = api.NextBackup(st)
		schedule, _ = st.BackupSchedule()
		last, _ = st.LastBackup()
		failed, failing = st.FailedBackup()
	})
	b.alarm(failed, failing)
	every := time.Duration(schedule.EveryMS) * time.Millisecond
	// A time far ahead was recorded by a leader whose clock was wrong.
	if now := b.wall(); !set || now.Before(due) && due.Sub(now) <= every {
		return nil
	}
	member := b.choose(ctx, last.ServerID, failed.ServerID)
	got, err := b.writeWhileSet(ctx, member, schedule)
	if ctx.Err() != nil {
		return nil
	}
	run := &fsm.BackupRun{
		ScheduleMS: schedule.AtMS, ServerID: member.ID, To: schedule.To, File: got.GetFile(), Index: got.GetIndex(), Bytes: got.GetBytes(),
	}
	switch {
	case err != nil:
		run.File, run.Error = "", backupError(err)
	case run.File == "":
		run.Error = "the coordinator named no file"
	}
	return run
}

// alarm shows in the status of the cluster that the last run failed.
func (b *scheduledBackups) alarm(failed fsm.BackupRun, failing bool) {
	if !failing {
		b.alarms.Clear(membership.AlarmBackup)
		return
	}
	b.alarms.RaiseSince(membership.AlarmBackup, fmt.Sprintf("the last scheduled backup failed on %s: %s; it is repeated: see dtaskctl backup status", failed.ServerID, failed.Error),
		time.UnixMilli(failed.AtMS))
}

var (
	// errSlowBackup is recorded for a run that did not end within its limit.
	errSlowBackup = errors.New("the backup took too long: the directory may be slow, or hang")
	// errReplacedSchedule ends a run whose schedule was replaced or deleted.
	errReplacedSchedule = errors.New("the schedule was replaced or deleted")
)

// writeWhileSet has a member write a backup within a limit, and while its schedule is set: a
// directory that hangs must not delay the schedule that replaces it.
func (b *scheduledBackups) writeWhileSet(ctx context.Context, member raftnode.Server, s fsm.BackupSchedule) (run *dtaskv1.BackupRun, err error) {
	limit := max(time.Duration(s.EveryMS)*time.Millisecond, minBackupTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, b.scale.Scale(limit), errSlowBackup)
	defer cancel()
	ctx, abandon := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { b.awaitReplaced(ctx, s); abandon(errReplacedSchedule) })
	defer watch.Wait()
	defer abandon(nil)
	if run, err = b.write(ctx, member, s); err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return run, err
}

// awaitReplaced returns when a schedule is not set any more, or ctx is done.
func (b *scheduledBackups) awaitReplaced(ctx context.Context, s fsm.BackupSchedule) {
	tick := time.NewTicker(b.scale.Scale(backupCheckInterval))
	defer tick.Stop()
	for set := true; set; {
		select {
		case <-tick.C:
			b.machine.Read(func(st *fsm.State, _ uint64) {
				now, _ := st.BackupSchedule()
				set = now == s
			})
		case <-ctx.Done():
			return
		}
	}
}

// backupError is what is recorded of an error: UTF-8, which its messages must be. Names of
// files may be something else, and the cut may be within a character.
func backupError(err error) string {
	text := err.Error()
	if s, ok := status.FromError(err); ok {
		text = s.Message()
	}
	return cmp.Or(strings.ToValidUTF8(text[:min(len(text), maxBackupError)], ""), "unknown error")
}

// choose returns the voter that writes the next backup: the follower that has written the
// last one, because a directory that is not shared has the files before; the follower after
// that which has failed, by id; this leader only if there is no other voter. Followers that
// don't answer, such as the leader that was lost, are chosen only if none does.
func (b *scheduledBackups) choose(ctx context.Context, last, failed string) raftnode.Server {
	self := raftnode.Server{ID: b.serverID}
	followers := slices.DeleteFunc(slices.Clone(b.members()), func(s raftnode.Server) bool { return !s.Voter || s.ID == b.serverID })
	if len(followers) == 0 {
		return self
	}
	if answering := b.answering(ctx, followers); len(answering) > 0 {
		followers = answering
	}
	slices.SortFunc(followers, func(x, y raftnode.Server) int { return cmp.Compare(x.ID, y.ID) })
	wanted := func(s raftnode.Server) bool { return s.ID == last }
	if failed != "" {
		wanted = func(s raftnode.Server) bool { return s.ID > failed }
	}
	return followers[max(0, slices.IndexFunc(followers, wanted))]
}

// record records the end of a run, and reports whether it needs no further attempt.
func (b *scheduledBackups) record(ctx context.Context, recorder backupRecorder, run fsm.BackupRun) bool {
	err := recorder.RecordBackup(ctx, run)
	if _, rejected := errors.AsType[*sequencer.RejectedError](err); err != nil && !rejected {
		b.log.DebugContext(ctx, "end of a backup not recorded yet", "err", err)
		return false
	}
	switch {
	case err != nil:
		b.log.InfoContext(ctx, "backup of an earlier schedule ended", "server_id", run.ServerID, "to", run.To, "err", run.Error)
	case run.Error != "":
		b.log.WarnContext(ctx, "backup failed; it is repeated", "server_id", run.ServerID, "to", run.To, "err", run.Error)
	default:
		b.log.InfoContext(ctx, "backup written", "server_id", run.ServerID, "to", run.To, "file", run.File, "bytes", run.Bytes)
	}
	return true
}
