package document

import dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"

// SavedBackup is a backup that was saved.
type SavedBackup struct {
	File        string `json:"file"`
	Bytes       uint64 `json:"bytes"`
	SHA256      string `json:"sha256"` // of the file
	Encrypted   bool   `json:"encrypted"`
	ClusterID   string `json:"cluster_id"`
	ServerID    string `json:"server_id"` // of the coordinator that wrote it
	CreatedAt   string `json:"created_at"`
	Index       uint64 `json:"index"` // the last log entry in it
	Level       uint32 `json:"level"` // the cluster's feature level
	History     bool   `json:"history"`
	HistoryJobs uint64 `json:"history_jobs"`
	HistoryFile string `json:"history_file"` // with --to: file that was added for them; empty = none
}

// BackupStatus is the schedule of backups and its last runs.
type BackupStatus struct {
	Schedule *BackupSchedule `json:"schedule"` // null = none
	Last     *BackupRun      `json:"last"`     // that succeeded; null = none
	Failed   *BackupRun      `json:"failed"`   // the last one, if it failed
	NextAt   *string         `json:"next_at"`  // null = never
}

// BackupSchedule is how often a backup is written, and where.
type BackupSchedule struct {
	EveryMS int64  `json:"every_ms"`
	To      string `json:"to"`
	Keep    uint32 `json:"keep"` // 0 = all
	SetAt   string `json:"set_at"`
}

// BackupRun is a run of a schedule.
type BackupRun struct {
	ServerID string `json:"server_id"` // of the coordinator that wrote it
	EndedAt  string `json:"ended_at"`
	To       string `json:"to"`
	File     string `json:"file"`  // with the state; empty if it failed
	Index    uint64 `json:"index"` // the last log entry in it
	Bytes    uint64 `json:"bytes"` // that were added
	Error    string `json:"error"` // empty if it succeeded
}

// DeletedBackupSchedule is the end of a schedule.
type DeletedBackupSchedule struct {
	Already bool `json:"already"` // there was none
}

// NewBackupStatus converts the status of backups.
func NewBackupStatus(s *dtaskv1.BackupStatusResponse) BackupStatus {
	return BackupStatus{
		Schedule: NewBackupSchedule(s.GetSchedule()), Last: newBackupRun(s.GetLast()), Failed: newBackupRun(s.GetFailed()), NextAt: optionalTime(s.GetNextAt()),
	}
}

// NewBackupSchedule converts a schedule; nil stays nil.
func NewBackupSchedule(s *dtaskv1.BackupSchedule) *BackupSchedule {
	if s == nil {
		return nil
	}
	return &BackupSchedule{EveryMS: s.GetEveryMs(), To: s.GetTo(), Keep: s.GetKeep(), SetAt: Time(s.GetSetAt())}
}

func newBackupRun(r *dtaskv1.BackupRun) *BackupRun {
	if r == nil {
		return nil
	}
	return &BackupRun{
		ServerID: r.GetServerId(), EndedAt: Time(r.GetEndedAt()), To: r.GetTo(), File: r.GetFile(), Index: r.GetIndex(), Bytes: r.GetBytes(), Error: r.GetError(),
	}
}

// NewDeletedBackupSchedule converts the response to a deletion.
func NewDeletedBackupSchedule(r *dtaskv1.DeleteBackupScheduleResponse) DeletedBackupSchedule {
	return DeletedBackupSchedule{Already: r.GetAlready()}
}

// Backups are the backups in a directory, the newest first.
type Backups struct {
	Dir     string   `json:"dir"`
	Backups []Backup `json:"backups"`
}

// Backup is a backup in a directory.
type Backup struct {
	File            string   `json:"file"` // with the state
	ClusterID       string   `json:"cluster_id"`
	CreatedAt       string   `json:"created_at"`
	Index           uint64   `json:"index"` // the last log entry in it
	Bytes           int64    `json:"bytes"` // of all its files
	Encrypted       bool     `json:"encrypted"`
	HistoryFiles    []string `json:"history_files"`
	HistoryComplete bool     `json:"history_complete"` // no file of the history is missing
}
