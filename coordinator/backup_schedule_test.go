package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// backedUp is a cluster whose leaders have backups written in virtual time.
type backedUp struct {
	*testing.T

	machine *fsm.Machine
	members []raftnode.Server
	began   time.Time
	// takes is how long a member writes, and fails why it can't; nil: it writes at once.
	takes  func(server string) time.Duration
	fails  func(server string) error
	alarms membership.Alarms
	dead   string // a member that does not answer

	mu     sync.Mutex // guards the fields below, and changes of machine
	wrote  []string   // servers that began to write, with the time since the begin
	refuse int        // records that the log refuses from now on
}

func newBackedUp(t *testing.T, every time.Duration) *backedUp {
	t.Helper()
	b := &backedUp{
		T: t, machine: fsm.NewMachine(), began: time.Now(),
		members: []raftnode.Server{{ID: "n3", Voter: true}, {ID: "n1", Voter: true}, {ID: "n0"}, {ID: "n2", Voter: true}},
		takes:   func(string) time.Duration { return 0 }, fails: func(string) error { return nil },
	}
	b.apply(&fsm.SetLevel{Level: fsm.MaxLevel})
	b.set(every)
	return b
}

func (b *backedUp) set(every time.Duration) {
	b.Helper()
	b.apply(&fsm.SetBackupSchedule{BackupSchedule: fsm.BackupSchedule{
		EveryMS: every.Milliseconds(), To: "file:///mnt", Keep: 3, AtMS: time.Now().UnixMilli(),
	}})
}

func (b *backedUp) apply(op fsm.Op) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := (&stateRecorder{machine: b.machine}).do(op); err != nil {
		b.Fatal(err)
	}
}

// RecordBackup implements backupRecorder.
func (b *backedUp) RecordBackup(_ context.Context, run fsm.BackupRun) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse > 0 {
		b.refuse--
		return sequencer.ErrOutcomeUnknown
	}
	run.AtMS = time.Now().UnixMilli()
	if err := (&stateRecorder{machine: b.machine}).do(&fsm.RecordBackup{BackupRun: run}); err != nil {
		return &sequencer.RejectedError{Reason: fsm.OutOfOrder}
	}
	return nil
}

// write is that of the duty.
func (b *backedUp) write(ctx context.Context, member raftnode.Server, s fsm.BackupSchedule) (*dtaskv1.BackupRun, error) {
	b.mu.Lock()
	b.wrote = append(b.wrote, member.ID+" "+time.Since(b.began).Truncate(time.Minute).String())
	b.mu.Unlock()
	if s.To != "file:///mnt" || s.Keep != 3 {
		b.Errorf("got schedule %+v", s)
	}
	select {
	case <-time.After(b.takes(member.ID)):
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if err := b.fails(member.ID); err != nil {
		return nil, err
	}
	return &dtaskv1.BackupRun{ServerId: member.ID, To: s.To, File: "state-7.dtbk", Index: 7, Bytes: 100}, nil
}

// lead runs the duty of a leader for a while.
func (b *backedUp) lead(server string, d time.Duration) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	duty := &scheduledBackups{
		serverID: server, machine: b.machine, members: func() []raftnode.Server { return b.members },
		answering: func(_ context.Context, members []raftnode.Server) []raftnode.Server {
			return slices.DeleteFunc(slices.Clone(members), func(s raftnode.Server) bool { return s.ID == b.dead })
		},
		recorder: func() backupRecorder { return b }, write: b.write, wall: time.Now, alarms: &b.alarms, log: slog.New(slog.DiscardHandler),
	}
	if err := duty.Run(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		b.Errorf("the duty ended: %v", err)
	}
}

// wants checks which servers wrote when, and what is recorded of the last run.
func (b *backedUp) wants(last, failure string, wrote ...string) {
	b.Helper()
	if !slices.Equal(b.wrote, wrote) {
		b.Errorf("wrote %q, want %q", b.wrote, wrote)
	}
	b.machine.Read(func(st *fsm.State, _ uint64) {
		success, _ := st.LastBackup()
		failed, _ := st.FailedBackup()
		if success.ServerID != last || failed.Error != failure {
			b.Errorf("last backup %+v, failed one %+v", success, failed)
		}
	})
}

func TestABackupIsWrittenAtOnceAndAtItsInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBackedUp(t, time.Hour)
		b.takes = func(string) time.Duration { return 10 * time.Minute }
		b.lead("n1", 3*time.Hour)
		// The follower that has the files before, an hour after the end of each.
		b.wants("n2", "", "n2 0s", "n2 1h10m0s", "n2 2h20m0s")
	})
}

// The next leader has no record of a run that was not complete.
func TestABackupWhoseLeaderWasKilledIsWrittenByTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBackedUp(t, time.Hour)
		b.takes = func(string) time.Duration { return 10 * time.Minute }
		b.lead("n1", 5*time.Minute)
		b.wants("", "", "n2 0s")
		b.lead("n2", 15*time.Minute)
		b.wants("n1", "", "n2 0s", "n1 5m0s")
		b.lead("n3", time.Hour) // due an hour after the end of the second one
		b.wants("n1", "", "n2 0s", "n1 5m0s", "n1 1h15m0s")
	})
}

// The leader that was killed is a follower now, which would fail.
func TestABackupIsWrittenByAFollowerThatAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBackedUp(t, time.Hour)
		b.dead = "n2"
		b.lead("n1", time.Minute)
		b.wants("n3", "", "n3 0s")
		b.members = []raftnode.Server{{ID: "n1", Voter: true}, {ID: "n2", Voter: true}}
		b.lead("n1", time.Hour) // nobody answers
		b.wants("n2", "", "n3 0s", "n2 1h0m0s")
	})
}

func TestABackupThatFailsIsRepeatedByTheNextFollower(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBackedUp(t, time.Hour)
		healthy := false
		b.fails = func(server string) error {
			if server == "n3" && healthy {
				return nil
			}
			return status.Error(codes.FailedPrecondition, server+" has no space")
		}
		b.lead("n1", 150*time.Second)
		b.wants("", "n2 has no space", "n2 0s", "n3 1m0s", "n2 2m0s")
		healthy = true
		b.lead("n1", 2*time.Hour)
		b.wants("n3", "", "n2 0s", "n3 1m0s", "n2 2m0s", "n3 3m0s", "n3 1h3m0s")
	})
}

// A directory that hangs must not end the backups.
func TestABackupThatTakesTooLongIsRepeatedByAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBackedUp(t, time.Minute)
		b.takes = func(server string) time.Duration {
			if server == "n2" {
				return 1000 * time.Hour
			}
			return 0
		}
		b.lead("n1", minBackupTimeout+30*time.Second)
		b.wants("", errSlowBackup.Error(), "n2 0s")
		b.lead("n1", time.Minute)
		b.wants("n3", "", "n2 0s", "n3 11m0s")
	})
}

// Its directory may hang, which is why it was replaced.
func TestABackupOfAReplacedScheduleIsAbandoned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBackedUp(t, time.Hour)
		b.takes = func(string) time.Duration { return 10 * time.Minute }
		replaced := time.AfterFunc(5*time.Minute, func() { b.set(2 * time.Hour) })
		defer replaced.Stop()
		b.lead("n1", 10*time.Minute)
		b.wants("", "", "n2 0s", "n2 5m0s")
		b.lead("n1", time.Hour)
		b.wants("n2", "", "n2 0s", "n2 5m0s", "n2 10m0s")
		b.apply(&fsm.DeleteBackupSchedule{})
		b.lead("n1", 10*time.Hour)
		b.wants("n2", "", "n2 0s", "n2 5m0s", "n2 10m0s")
	})
}

func TestTheLeaderShowsThatTheLastBackupFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBackedUp(t, time.Hour)
		seen := make(map[string]bool) // messages of alarms, from within the term
		b.takes = func(string) time.Duration {
			for _, a := range b.alarms.Of("n1") {
				seen[a.GetKind()+": "+a.GetMessage()] = true
			}
			return 0
		}
		b.fails = func(server string) error {
			if server == "n2" {
				return errors.New("no space")
			}
			return nil
		}
		b.lead("n1", 3*time.Hour)
		b.wants("n3", "", "n2 0s", "n3 1m0s", "n3 1h1m0s", "n3 2h1m0s")
		if len(seen) != 1 || !seen["backup: the last scheduled backup failed on n2: no space; it is repeated: see dtaskctl backup status"] {
			t.Errorf("alarms %v", seen)
		}
		b.apply(&fsm.RecordBackup{BackupRun: fsm.BackupRun{
			ScheduleMS: b.began.UnixMilli(), AtMS: time.Now().UnixMilli(), ServerID: "n3", To: "file:///mnt", Error: "gone",
		}})
		b.lead("n1", 10*time.Second)
		if left := b.alarms.Of("n1"); len(left) > 0 {
			t.Errorf("after the term: %v", left)
		}
	})
}

// What was written must not be written again because the log was busy.
func TestTheEndOfABackupIsRecordedWhenTheLogTakesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBackedUp(t, time.Hour)
		b.refuse = 20
		b.lead("n1", time.Minute)
		b.wants("n2", "", "n2 0s")
	})
}

func TestALeaderWithoutOtherVotersWritesTheBackup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBackedUp(t, time.Hour)
		b.members = []raftnode.Server{{ID: "n0"}, {ID: "n1", Voter: true}}
		b.lead("n1", time.Minute)
		b.wants("n1", "", "n1 0s")
	})
}

// A leader whose clock was a year ahead has recorded a run, and then another one leads.
func TestATimeFarAheadDoesNotStopBackups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBackedUp(t, time.Hour)
		var schedule fsm.BackupSchedule
		b.machine.Read(func(st *fsm.State, _ uint64) { schedule, _ = st.BackupSchedule() })
		b.apply(&fsm.RecordBackup{BackupRun: fsm.BackupRun{
			ScheduleMS: schedule.AtMS, AtMS: time.Now().Add(365 * 24 * time.Hour).UnixMilli(), ServerID: "n3", To: schedule.To, File: "state-1.dtbk",
		}})
		b.lead("n1", 30*time.Minute)
		b.wants("n3", "", "n3 0s")
		b.lead("n1", time.Hour)
		b.wants("n3", "", "n3 0s", "n3 1h0m0s")
	})
}

// Messages are UTF-8, and names of files need not be.
func TestTheErrorOfABackupCanBeShown(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		errors.New("opening /mnt/\xff: no such file"), errors.New(strings.Repeat("x", maxBackupError-1) + "é and more"), errors.New(""),
		status.Error(codes.Internal, strings.Repeat("é", maxBackupError)),
	} {
		if text := backupError(err); text == "" || len(text) > maxBackupError || !utf8.ValidString(text) {
			t.Errorf("%q became %q", err, text)
		}
	}
}
