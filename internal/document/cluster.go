package document

import dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"

// Cluster is the coordinators as one of them knows them.
type Cluster struct {
	ID      string   `json:"cluster_id"` // empty if unknown
	Name    string   `json:"name"`       // that operators gave it; empty = none
	Leader  string   `json:"leader"`     // ID; empty = none
	Level   uint32   `json:"level"`      // feature level; 0 = unknown
	Term    uint64   `json:"term"`
	Members []Member `json:"members"`
	Alarms  []Alarm  `json:"alarms"` // what an operator must know; empty = nothing
	// Queues is known if a leader answers, and there is more than the queue default as it is at
	// first.
	Queues *QueueSummary `json:"queues,omitempty"`
}

// Alarm is a state of a coordinator that an operator must know of.
type Alarm struct {
	Member  string  `json:"member"`
	Kind    string  `json:"kind"`
	Message string  `json:"message"` // what happened, and what to do
	Since   *string `json:"since"`   // null = unknown
}

// Member is a coordinator.
type Member struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	State   string `json:"state"`
	Applied uint64 `json:"applied"`
	Lag     uint64 `json:"lag"`    // entries
	LagMS   *int64 `json:"lag_ms"` // age of the oldest of these entries; null = unknown
	Voter   bool   `json:"voter"`  // false while it catches up
	Version string `json:"version"`
	// MinLevel and MaxLevel are the feature levels that it supports; 0 = unknown.
	MinLevel uint32 `json:"min_level"`
	MaxLevel uint32 `json:"max_level"`
	// TLSNotAfter is when its certificate expires; null = it has none, or it is unknown.
	TLSNotAfter *string `json:"tls_not_after"`
	DiskFree    *uint64 `json:"disk_free"` // bytes; null = unknown
	// HistoryImport is set while it imports the history of a backup.
	HistoryImport *HistoryImport `json:"history_import,omitempty"`
}

// HistoryImport is how far the history of a backup is imported. All of it can be read.
type HistoryImport struct {
	Jobs uint64 `json:"jobs"`
	Left uint64 `json:"left"` // of these, not imported yet
}

// Status is the cluster and the jobs that have not ended.
type Status struct {
	Cluster Cluster `json:"cluster"`
	Jobs    []Job   `json:"jobs"`
}

// Workers is a list of workers.
type Workers struct {
	Workers []Worker `json:"workers"`
	More    bool     `json:"more,omitempty"` // the list was cut at a limit
}

// Worker is a worker that the cluster knows.
type Worker struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	State    string            `json:"state"`
	Slots    uint32            `json:"slots"`
	Running  uint32            `json:"running"`
	Queued   uint32            `json:"queued"`   // assigned beyond its slots
	Prefetch uint32            `json:"prefetch"` // maximum of queued
	Labels   map[string]string `json:"labels"`
	Types    []string          `json:"types"`             // of tasks that it handles; empty: all
	Secrets  []string          `json:"secrets,omitempty"` // names of those that it has
	// DrainUntil and DrainReason are set while the operator drains the worker.
	DrainUntil  string `json:"drain_until,omitempty"`
	DrainReason string `json:"drain_reason,omitempty"`
}

// AddedMember is a coordinator that was added.
type AddedMember struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Voter   bool   `json:"voter"`
}

// RemovedMember is a coordinator that was removed.
type RemovedMember struct {
	ID      string `json:"id"`
	Already bool   `json:"already"` // it had been removed before
}

// NamedCluster is the name of a cluster after a change.
type NamedCluster struct {
	Name    string `json:"name"`    // empty: it was removed
	Already bool   `json:"already"` // nothing had to change
}

// NewNamedCluster converts the response to a change of the name of a cluster.
func NewNamedCluster(name string, r *dtaskv1.SetClusterNameResponse) NamedCluster {
	return NamedCluster{Name: name, Already: r.GetAlready()}
}

// LeaderTransfer names the leader after a transfer of leadership.
type LeaderTransfer struct {
	Leader string `json:"leader"`
}

// Versions holds the versions of both sides.
type Versions struct {
	Client string  `json:"client"`
	Server *string `json:"server"` // null if no coordinator answers
	// TimeZones is the version of the time zones that dtaskctl computes with, such as 2025c.
	TimeZones string `json:"time_zones"`
}

// NewCluster converts the status of a cluster.
func NewCluster(s *dtaskv1.StatusResponse) Cluster {
	return Cluster{
		ID: s.GetClusterId(), Name: s.GetName(), Leader: s.GetLeader(), Level: s.GetLevel(), Term: s.GetTerm(), Members: list(s.GetMembers(), newMember),
		Alarms: list(s.GetAlarms(), newAlarm),
	}
}

func newAlarm(a *dtaskv1.Alarm) Alarm {
	doc := Alarm{Member: a.GetMember(), Kind: a.GetKind(), Message: a.GetMessage()}
	if a.GetSince() != nil {
		doc.Since = new(Time(a.GetSince().AsTime().UnixMilli()))
	}
	return doc
}

func newMember(m *dtaskv1.Member) Member {
	doc := Member{
		ID: m.GetId(), Address: m.GetAddress(), State: m.GetState(), Applied: m.GetApplied(), Lag: m.GetLag(), LagMS: m.LagMs,
		Voter: m.GetVoter(), Version: m.GetVersion(), MinLevel: m.GetMinLevel(), MaxLevel: m.GetMaxLevel(),
	}
	if m.GetTlsNotAfter() != 0 {
		doc.TLSNotAfter = new(Time(m.GetTlsNotAfter()))
	}
	if m.GetDiskSize() != 0 {
		doc.DiskFree = new(m.GetDiskFree())
	}
	if x := m.GetHistoryImport(); x != nil {
		doc.HistoryImport = &HistoryImport{Jobs: x.GetJobs(), Left: x.GetLeft()}
	}
	return doc
}

// NewStatus converts the status of a cluster and a list of jobs.
func NewStatus(s *dtaskv1.StatusResponse, jobs []*dtaskv1.Job) Status {
	return Status{Cluster: NewCluster(s), Jobs: list(jobs, NewJob)}
}

// NewWorkers converts a list of workers; more is true if it was cut at a limit.
func NewWorkers(workers []*dtaskv1.Worker, more bool) Workers {
	return Workers{Workers: list(workers, NewWorker), More: more}
}

// NewWorker converts a worker.
func NewWorker(w *dtaskv1.Worker) Worker {
	doc := Worker{
		ID: w.GetId(), Name: w.GetName(), State: w.GetState(), Slots: w.GetSlots(), Running: w.GetRunning(),
		Queued: w.GetQueued(), Prefetch: w.GetPrefetch(), Labels: w.GetLabels(), Types: append([]string{}, w.GetTypes()...), DrainReason: w.GetDrainReason(),
		Secrets: w.GetSecrets(),
	}
	if doc.Labels == nil {
		doc.Labels = map[string]string{}
	}
	if w.GetDrainUntil() != 0 {
		doc.DrainUntil = Time(w.GetDrainUntil())
	}
	return doc
}
