package fsm

// SetBackupSchedule replaces the schedule of backups.
type SetBackupSchedule struct{ BackupSchedule }

func (*SetBackupSchedule) kind() opKind { return 49 }

// apply sets the schedule. The last success stays known; a failure is that of the schedule
// before.
// Rejects: Malformed.
func (o *SetBackupSchedule) apply(s *State, _ *Effects) Reason {
	if o.malformed() {
		return Malformed
	}
	s.mixBackups()
	s.backups.schedule, s.backups.failure = o.BackupSchedule, BackupRun{}
	s.mixBackups()
	return Accepted
}

// DeleteBackupSchedule removes the schedule of backups.
type DeleteBackupSchedule struct{}

func (*DeleteBackupSchedule) kind() opKind { return 50 }

func (*DeleteBackupSchedule) fields(*coder) {}

// apply removes the schedule. The last success stays known.
// Rejects: AlreadyEnded without a schedule.
func (*DeleteBackupSchedule) apply(s *State, _ *Effects) Reason {
	if _, set := s.BackupSchedule(); !set {
		return AlreadyEnded
	}
	s.mixBackups()
	s.backups.schedule, s.backups.failure = BackupSchedule{}, BackupRun{}
	s.mixBackups()
	return Accepted
}

// RecordBackup records the end of a run of the schedule of backups.
type RecordBackup struct{ BackupRun }

func (*RecordBackup) kind() opKind { return 51 }

// apply records the run. A success ends the failures before it.
// Rejects: Malformed, OutOfOrder if the schedule was replaced or deleted meanwhile: the run
// says nothing about the present one.
func (o *RecordBackup) apply(s *State, _ *Effects) Reason {
	b := &s.backups
	switch schedule, set := s.BackupSchedule(); {
	case o.malformed():
		return Malformed
	case !set || schedule.AtMS != o.ScheduleMS || schedule.To != o.To:
		return OutOfOrder
	}
	s.mixBackups()
	if o.Error == "" {
		b.success, b.failure = o.BackupRun, BackupRun{}
	} else {
		b.failure = o.BackupRun
	}
	s.mixBackups()
	return Accepted
}

func (s *State) mixBackups() {
	s.mixBackupSchedule(&s.backups.schedule)
	s.mixBackupRun(&s.backups.success)
	s.mixBackupRun(&s.backups.failure)
}
