package document

import "github.com/dtask/dtask/internal/audit"

// AuditReport is whether an audit log was cut or changed.
type AuditReport struct {
	ServerID   string       `json:"server_id"` // of the coordinator that wrote it; empty = unknown
	Files      int          `json:"files"`
	Lines      int          `json:"lines"`
	First      uint64       `json:"first"`      // number of the first line
	Last       uint64       `json:"last"`       // number of the last line
	Incomplete bool         `json:"incomplete"` // the last line is incomplete
	Known      *uint64      `json:"known"`      // number of the line that the cluster knows; null = not compared
	KnownAt    *string      `json:"known_at"`   // when the cluster recorded it
	Faults     []AuditFault `json:"faults"`
}

// AuditFault is a place where an audit log is not as it was written.
type AuditFault struct {
	File string `json:"file"`
	Line int    `json:"line"` // in the file; 0 = the file as a whole
	Text string `json:"text"`
}

// AuditLines are lines of an audit log, as they are in it.
type AuditLines struct {
	Lines []audit.Record `json:"lines"`
}
