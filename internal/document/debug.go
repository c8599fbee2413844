package document

// SavedDebug is a debug bundle that was written.
type SavedDebug struct {
	File     string         `json:"file"`
	Bytes    uint64         `json:"bytes"`
	Replicas []DebugReplica `json:"replicas"`
}

// DebugManifest says what a debug bundle has, in the bundle.
type DebugManifest struct {
	CreatedAt string         `json:"created_at"`
	Version   string         `json:"version"` // of dtaskctl
	Replicas  []DebugReplica `json:"replicas"`
}

// DebugReplica is what a coordinator has sent for a debug bundle.
type DebugReplica struct {
	ID        string   `json:"id"` // empty: unknown
	Address   string   `json:"address"`
	Directory string   `json:"directory"` // of its files in the bundle
	Files     []string `json:"files"`
	Error     *string  `json:"error"` // why files are missing; null: all are there
}
