package show

import (
	"fmt"
	"strings"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// BackupSchedule describes a schedule of backups.
func BackupSchedule(s *dtaskv1.BackupSchedule) string {
	kept := "keeping all"
	if s.GetKeep() > 0 {
		kept = "keeping the newest " + Count(s.GetKeep())
	}
	return fmt.Sprintf("every %s to %s, %s", Duration(time.Duration(s.GetEveryMs())*time.Millisecond), backupTarget(s.GetTo()), kept)
}

// backupTarget is a directory of backups, and to how many keys they are encrypted.
func backupTarget(to string) string {
	dir, keys, encrypted := strings.Cut(Clean(to), "?")
	if !encrypted {
		return dir
	}
	return fmt.Sprintf("%s (encrypted to %s)", dir, Plural(strings.Count(keys, "encrypt-to="), "key"))
}

// BackupStatus adds the schedule of backups and its last runs.
func (p *Printer) BackupStatus(s *dtaskv1.BackupStatusResponse) {
	schedule, next := "none; dtaskctl backup schedule sets one", "never"
	if s.GetSchedule() != nil {
		schedule, next = BackupSchedule(s.GetSchedule()), "now"
		if left := time.UnixMilli(s.GetNextAt()).Sub(p.now); left > 0 {
			next = "in " + Duration(left)
		}
	}
	p.Line("schedule  %s", schedule)
	if last := s.GetLast(); last == nil {
		p.Line("last      none")
	} else {
		p.Line("last      %s, %s, by %s", Ago(last.GetEndedAt(), p.now), absolute(last.GetEndedAt()), Clean(last.GetServerId()))
		p.Line("file      %s in %s", Clean(last.GetFile()), backupTarget(last.GetTo()))
		p.Line("size      %s bytes added, log entry %d", Count(last.GetBytes()), last.GetIndex())
	}
	p.Line("next      %s", next)
	if f := s.GetFailed(); f != nil {
		p.Line("failed    %s on %s: %s", Ago(f.GetEndedAt(), p.now), Clean(f.GetServerId()), Clean(f.GetError()))
	}
}
