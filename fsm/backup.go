package fsm

import (
	"errors"
	"fmt"
)

// BackupSchedule is how often a coordinator writes a backup, and where.
type BackupSchedule struct {
	EveryMS int64  // from the end of one backup to the next
	To      string // file:// URL of a directory
	Keep    uint32 // the newest states to keep; 0 = all
	AtMS    int64  // when it was set, by the leader's clock
}

// BackupRun is one run of a schedule: a backup that was written and read back, or why that
// failed.
type BackupRun struct {
	ScheduleMS int64  // AtMS of its schedule
	AtMS       int64  // when it ended, by the leader's clock
	ServerID   string // of the coordinator that wrote it
	To         string // file:// URL of the directory
	File       string // with the state, in that directory; empty if it failed
	Index      uint64 // the last log entry in it
	Bytes      uint64 // that were added to the directory
	Error      string // empty if it succeeded
}

// backups are the schedule of backups, and its last runs.
type backups struct {
	schedule BackupSchedule // EveryMS 0 = none
	success  BackupRun      // the last one; AtMS 0 = none
	failure  BackupRun      // the last one, if no success followed; AtMS 0 = none
}

// BackupSchedule returns the schedule of backups.
func (b *backups) BackupSchedule() (s BackupSchedule, set bool) {
	return b.schedule, b.schedule.EveryMS > 0
}

// LastBackup returns the last run that succeeded, also one of an earlier schedule.
func (b *backups) LastBackup() (r BackupRun, known bool) { return b.success, b.success.AtMS > 0 }

// FailedBackup returns the last run, if it failed.
func (b *backups) FailedBackup() (r BackupRun, known bool) { return b.failure, b.failure.AtMS > 0 }

func (s *BackupSchedule) fields(c *coder) {
	c.i64(&s.EveryMS)
	c.str(&s.To)
	number(c, &s.Keep)
	c.i64(&s.AtMS)
}

func (s *BackupSchedule) malformed() bool {
	return s.EveryMS <= 0 || s.AtMS <= 0 || s.To == "" || len(s.To) > maxBackupTarget
}

func (r *BackupRun) fields(c *coder) {
	c.i64(&r.ScheduleMS)
	c.i64(&r.AtMS)
	c.str(&r.ServerID)
	c.str(&r.To)
	c.str(&r.File)
	number(c, &r.Index)
	number(c, &r.Bytes)
	c.str(&r.Error)
}

func (r *BackupRun) malformed() bool {
	return r.ScheduleMS <= 0 || r.AtMS <= 0 || r.ServerID == "" || len(r.ServerID) > maxIdentityText || r.To == "" || len(r.To) > maxBackupTarget ||
		len(r.File) > maxBackupTarget || len(r.Error) > maxText || (r.File == "") != (r.Error != "")
}

func (b *backups) isEmpty() bool { return *b == backups{} }

func (b *backups) fields(c *coder) {
	b.schedule.fields(c)
	b.success.fields(c)
	b.failure.fields(c)
}

// check checks that the schedule and its runs are some that operations can leave.
func (b *backups) check() error {
	switch {
	case b.schedule != BackupSchedule{} && b.schedule.malformed():
		return errors.New("malformed schedule of backups")
	case b.success != BackupRun{} && (b.success.malformed() || b.success.Error != ""):
		return errors.New("malformed backup that succeeded")
	case b.failure != BackupRun{} && (b.failure.malformed() || b.failure.Error == ""):
		return errors.New("malformed backup that failed")
	case b.failure != BackupRun{} && b.failure.ScheduleMS != b.schedule.AtMS:
		return fmt.Errorf("failed backup of the schedule of %d, not of %d", b.failure.ScheduleMS, b.schedule.AtMS)
	}
	return nil
}

// backups writes the frame of the backups. A cluster that never had a schedule has none, so
// that the form of its snapshots is that of builds without schedules.
func (f *frameWriter) backups(s *State) {
	if s.backups.isEmpty() {
		return
	}
	s.backups.fields(&f.c)
	f.frame(frameBackups)
}

// backups reads the frame, which is written only once, and only if there is something in it.
func (f *frameReader) backups(d *decoder) {
	b := &f.s.backups
	again := !b.isEmpty()
	b.fields(&coder{d: d})
	if d.err == nil && (again || b.isEmpty()) {
		d.fail(errors.New("empty or second frame of the backups"))
	}
}

func (d *digester) mixBackupSchedule(s *BackupSchedule) {
	d.mix(uint64(s.EveryMS)) //nolint:gosec // bits only
	d.mixString(s.To)
	d.mix(uint64(s.Keep))
	d.mix(uint64(s.AtMS)) //nolint:gosec // bits only
}

func (d *digester) mixBackupRun(r *BackupRun) {
	d.mix(uint64(r.ScheduleMS)) //nolint:gosec // bits only
	d.mix(uint64(r.AtMS))       //nolint:gosec // bits only
	for _, text := range []string{r.ServerID, r.To, r.File, r.Error} {
		d.mixString(text)
	}
	d.mix(r.Index)
	d.mix(r.Bytes)
}
