package document

// SavedBackup is a backup that was saved.
type SavedBackup struct {
	File        string `json:"file"`
	Bytes       uint64 `json:"bytes"`
	SHA256      string `json:"sha256"` // of the file
	ClusterID   string `json:"cluster_id"`
	ServerID    string `json:"server_id"` // of the coordinator that wrote it
	CreatedAt   string `json:"created_at"`
	Index       uint64 `json:"index"` // the last log entry in it
	Level       uint32 `json:"level"` // the cluster's feature level
	History     bool   `json:"history"`
	HistoryJobs uint64 `json:"history_jobs"`
	HistoryFile string `json:"history_file"` // with --to: file that was added for them; empty = none
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
	HistoryFiles    []string `json:"history_files"`
	HistoryComplete bool     `json:"history_complete"` // no file of the history is missing
}
