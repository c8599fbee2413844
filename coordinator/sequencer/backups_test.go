package sequencer_test

import (
	"testing"

	"github.com/dtask/dtask/fsm"
)

func TestOnlyRunsOfThePresentScheduleOfBackupsAreRecorded(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	wanted := fsm.BackupSchedule{EveryMS: 3_600_000, To: "file:///mnt", Keep: 3}
	_, err := s.SetBackupSchedule(t.Context(), wanted)
	wantRejected(t, "below its feature level", err, fsm.AboveLevel)
	raise(t, s)
	_, err = s.SetBackupSchedule(t.Context(), wanted)
	wantRejected(t, "one level below", err, fsm.AboveLevel)
	if err := s.ChangeLevel(t.Context(), func(fsm.Level, bool) *fsm.SetLevel { return &fsm.SetLevel{Level: fsm.MaxLevel} }); err != nil {
		t.Fatal(err)
	}
	first, err := s.SetBackupSchedule(t.Context(), wanted)
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.SetBackupSchedule(t.Context(), wanted)
	if err != nil || second.AtMS <= first.AtMS {
		t.Errorf("the schedules have the times %d and %d, %v", first.AtMS, second.AtMS, err)
	}
	run := fsm.BackupRun{ScheduleMS: first.AtMS, ServerID: "n2", To: wanted.To, File: "state-7.dtbk", Index: 7, Bytes: 100}
	wantRejected(t, "a run of the first one", s.RecordBackup(t.Context(), run), fsm.OutOfOrder)
	run.ScheduleMS = second.AtMS
	if err := s.RecordBackup(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	c.machine.Read(func(s *fsm.State, _ uint64) {
		schedule, _ := s.BackupSchedule()
		last, _ := s.LastBackup()
		run.AtMS = last.AtMS
		if schedule != second || last != run || last.AtMS == 0 {
			t.Errorf("got schedule %+v, last backup %+v", schedule, last)
		}
	})
	for _, want := range []bool{false, true} {
		if already, err := s.DeleteBackupSchedule(t.Context()); err != nil || already != want {
			t.Errorf("deleted: already %t, %v, want %t", already, err, want)
		}
	}
	wantRejected(t, "a run of the second one", s.RecordBackup(t.Context(), run), fsm.OutOfOrder)
}
