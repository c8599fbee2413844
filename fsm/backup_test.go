package fsm

import (
	"bytes"
	"testing"
)

// hourly is an operation that sets a schedule at a time.
func hourly(atMS int64) *SetBackupSchedule {
	return &SetBackupSchedule{BackupSchedule{EveryMS: 3_600_000, To: "file:///mnt", Keep: 3, AtMS: atMS}}
}

// ran is an operation that records a run of the schedule of hourly(10); problem is empty if
// it succeeded.
func ran(atMS int64, problem string) *RecordBackup {
	r := BackupRun{ScheduleMS: 10, AtMS: atMS, ServerID: "n2", To: "file:///mnt", Error: problem}
	if problem == "" {
		r.File, r.Index, r.Bytes = "state-7.dtbk", 7, 100
	}
	return &RecordBackup{r}
}

func TestTheLastSuccessfulBackupStaysKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(hourly(10)).do(ran(20, "")).do(ran(30, "no space"))
	if got, known := w.s.LastBackup(); !known || got != ran(20, "").BackupRun {
		t.Errorf("last: got %+v, %t", got, known)
	}
	if got, known := w.s.FailedBackup(); !known || got.Error != "no space" {
		t.Errorf("failed: got %+v, %t", got, known)
	}
	sameState(t, "after a restore", restored(t, snapshotOf(t, w.s)), w.s)
	fork := w.s.Fork()
	w.do(ran(40, ""))
	if _, known := w.s.FailedBackup(); known {
		t.Error("the failure outlives the success after it")
	}
	if got, _ := fork.LastBackup(); got.AtMS != 20 {
		t.Errorf("the fork has the backup of %d", got.AtMS)
	}
	w.do(ran(50, "gone")).do(&DeleteBackupSchedule{})
	_, set := w.s.BackupSchedule()
	_, failing := w.s.FailedBackup()
	last, known := w.s.LastBackup()
	if set || failing || !known || last.AtMS != 40 {
		t.Errorf("after the deletion: schedule %t, failure %t, last backup %+v", set, failing, last)
	}
	sameState(t, "after another restore", restored(t, snapshotOf(t, w.s)), w.s)
}

// A run that began under another schedule may have written to another place.
func TestARunOfAnEarlierScheduleIsNotRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	refused(t, w, "without a schedule", OutOfOrder, ran(20, ""))
	w.do(hourly(10)).do(hourly(15))
	refused(t, w, "replaced", OutOfOrder, ran(20, ""))
	elsewhere := ran(20, "")
	elsewhere.ScheduleMS, elsewhere.To = 15, "file:///elsewhere"
	refused(t, w, "elsewhere", OutOfOrder, elsewhere)
	w.do(&DeleteBackupSchedule{})
	refused(t, w, "deleted", OutOfOrder, ran(20, ""))
	refused(t, w, "deleted again", AlreadyEnded, &DeleteBackupSchedule{})
	if _, known := w.s.LastBackup(); known {
		t.Error("a backup is known")
	}
}

func TestMalformedBackupsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(hourly(10))
	long := string(make([]byte, maxBackupTarget+1))
	for what, damage := range map[string]func(*BackupSchedule){
		"no interval": func(s *BackupSchedule) { s.EveryMS = 0 },
		"no target":   func(s *BackupSchedule) { s.To = "" },
		"long target": func(s *BackupSchedule) { s.To = long },
		"no time":     func(s *BackupSchedule) { s.AtMS = 0 },
	} {
		op := hourly(11)
		damage(&op.BackupSchedule)
		refused(t, w, what, Malformed, op)
	}
	for what, damage := range map[string]func(*BackupRun){
		"no server":          func(r *BackupRun) { r.ServerID = "" },
		"no time":            func(r *BackupRun) { r.AtMS = 0 },
		"neither":            func(r *BackupRun) { r.File = "" },
		"a file of an error": func(r *BackupRun) { r.Error = "no space" },
		"a long error":       func(r *BackupRun) { r.File, r.Error = "", string(make([]byte, maxText+1)) },
	} {
		op := ran(20, "")
		damage(&op.BackupRun)
		refused(t, w, what, Malformed, op)
	}
}

func TestASnapshotWithInvalidBackupsIsRefused(t *testing.T) {
	t.Parallel()
	for what, damage := range map[string]func(b *backups){
		"schedule":            func(b *backups) { b.schedule.To = "" },
		"success":             func(b *backups) { b.success.File = "" },
		"failure":             func(b *backups) { b.failure.Error = "" },
		"of another schedule": func(b *backups) { b.failure.ScheduleMS++ },
	} {
		s := newWorld(t).do(hourly(10)).do(ran(20, "")).do(ran(30, "no space")).s
		damage(&s.backups)
		if err := s.Check(); err == nil {
			t.Errorf("%s: Check returns no error", what)
		}
		if _, err := ReadSnapshot(bytes.NewReader(snapshotOf(t, s))); err == nil {
			t.Errorf("%s: restored", what)
		}
	}
}

func TestARestoredClusterHasNoScheduleOfBackups(t *testing.T) {
	t.Parallel()
	m := NewMachine()
	m.state = newWorld(t).do(hourly(10)).do(ran(20, "")).s
	m.RestoreBackup(Restoration{Recovery: Recovery{ClusterID: "c", Server: "n1", Instance: "i"}})
	m.Read(func(s *State, _ uint64) {
		_, set := s.BackupSchedule()
		_, known := s.LastBackup()
		if set || known {
			t.Errorf("schedule %t, last backup %t", set, known)
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	})
}
