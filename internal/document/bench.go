package document

// Bench is the report of dtaskctl bench. Counters are null if the coordinators
// didn't report them before and after the run. Distributions are null if they
// have no samples.
type Bench struct {
	Tasks          int           `json:"tasks"`
	Jobs           int           `json:"jobs"`
	Shape          string        `json:"shape"`
	PayloadSize    int           `json:"payload_size"` // bytes
	Rate           float64       `json:"rate"`         // requested tasks per second; 0 = unlimited
	SubmitSeconds  float64       `json:"submit_seconds"`
	TotalSeconds   float64       `json:"end_to_end_seconds"`
	TasksPerSecond float64       `json:"tasks_per_second"`
	JobsPerSecond  float64       `json:"jobs_per_second"`
	TasksFailed    uint64        `json:"tasks_failed"`
	Retries        uint64        `json:"retries"`
	Submit         *Distribution `json:"submit_ms"`           // latency of one call
	ReadyToRunning *Distribution `json:"ready_to_running_ms"` // of the sampled tasks
	EndToEnd       *Distribution `json:"end_to_end_ms"`       // of the sampled tasks
	Sampled        int           `json:"tasks_sampled"`
	Entries        *uint64       `json:"entries"` // Raft log entries
	Operations     *uint64       `json:"operations"`
	PerEntry       *float64      `json:"operations_per_entry"`
	LogBytes       *uint64       `json:"log_bytes"`
	Syncs          *uint64       `json:"syncs"` // of all replicas
	LeaderChanges  *uint64       `json:"leader_changes"`
}

// Distribution is a latency distribution in milliseconds.
type Distribution struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}
