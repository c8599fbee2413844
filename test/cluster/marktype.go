package cluster

// MarkType is the type of tasks that mark-worker executes without a process:
// they write to the ledger, too.
const MarkType = "mark"

// MarkPayload is the payload of a task of MarkType, as JSON.
type MarkPayload struct {
	WorkMS int64 `json:"work_ms"`         // how long to work, in milliseconds
	Fails  int   `json:"fails,omitempty"` // fail so many attempts, then succeed
}
