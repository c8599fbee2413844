package document

import (
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Load is how much the cluster does.
type Load struct {
	Leader      string            `json:"leader"`
	Term        uint64            `json:"term"`
	At          string            `json:"at"`
	Workers     uint64            `json:"workers"` // with a session
	Slots       uint64            `json:"slots"`   // of the workers that are up
	Running     uint64            `json:"running"` // attempts on workers, queued ones included
	Orphaned    uint64            `json:"orphaned"`
	Ready       map[string]uint64 `json:"ready"` // tasks by priority
	OldestMS    int64             `json:"oldest_ready_ms"`
	Unplaceable uint64            `json:"unplaceable"` // ready tasks that no worker could run
	Totals      LoadCounts        `json:"totals"`      // since the leader's process started
	Windows     []LoadWindow      `json:"windows"`
	Queues      []Queue           `json:"queues"` // all, as they were counted within the last seconds
}

// LoadWindow is what happened in the last minute, five minutes or hour. Rates are per second
// of the time that the leader knows.
type LoadWindow struct {
	Window    string     `json:"window"` // 1m0s, 5m0s or 1h0m0s
	CoveredMS int64      `json:"covered_ms"`
	Counts    LoadCounts `json:"counts"`
	Submitted float64    `json:"jobs_per_s"`
	Completed float64    `json:"tasks_per_s"`
	Failed    float64    `json:"failures_per_s"`
	Wait      Latency    `json:"wait"` // from ready to sent to a worker
	Run       Latency    `json:"run"`  // of attempts that succeeded
}

// LoadCounts are jobs, attempts, tasks and failed attempts.
type LoadCounts struct {
	Submitted uint64 `json:"submitted"`
	Assigned  uint64 `json:"assigned"`
	Completed uint64 `json:"completed"`
	Failed    uint64 `json:"failed"`
}

// Latency is a distribution of durations in milliseconds; at most 13 % too high.
type Latency struct {
	Count uint64  `json:"count"`
	P50   float64 `json:"p50_ms"`
	P95   float64 `json:"p95_ms"`
	P99   float64 `json:"p99_ms"`
}

// NewLoad converts the load of a cluster.
func NewLoad(l *dtaskv1.LoadResponse) Load {
	doc := Load{
		Leader: l.GetLeader(), Term: l.GetTerm(), At: Time(l.GetAt()), Workers: l.GetWorkers(), Slots: l.GetSlots(), Running: l.GetRunning(),
		Orphaned: l.GetOrphaned(), Ready: map[string]uint64{}, OldestMS: l.GetOldestMs(), Unplaceable: l.GetUnplaceable(),
		Totals: newLoadCounts(l.GetTotals()), Windows: list(l.GetWindows(), newLoadWindow),
		Queues: list(l.GetQueues(), NewQueue),
	}
	for _, r := range l.GetReady() {
		doc.Ready[Priority(r.GetPriority())] = r.GetTasks()
	}
	return doc
}

func newLoadWindow(w *dtaskv1.LoadWindow) LoadWindow {
	c := w.GetCounts()
	return LoadWindow{
		Window: (time.Duration(w.GetWindowMs()) * time.Millisecond).String(), CoveredMS: w.GetCoveredMs(), Counts: newLoadCounts(c),
		Submitted: PerSecond(c.GetSubmitted(), w.GetCoveredMs()), Completed: PerSecond(c.GetCompleted(), w.GetCoveredMs()),
		Failed: PerSecond(c.GetFailed(), w.GetCoveredMs()), Wait: newLatency(w.GetWait()), Run: newLatency(w.GetRun()),
	}
}

// PerSecond returns a rate, rounded to a tenth; 0 for no time.
func PerSecond(n uint64, ms int64) float64 {
	if ms <= 0 {
		return 0
	}
	return float64((n*10_000+uint64(ms)/2)/uint64(ms)) / 10
}

func newLoadCounts(c *dtaskv1.LoadCounts) LoadCounts {
	return LoadCounts{Submitted: c.GetSubmitted(), Assigned: c.GetAssigned(), Completed: c.GetCompleted(), Failed: c.GetFailed()}
}

func newLatency(l *dtaskv1.Latency) Latency {
	return Latency{Count: l.GetCount(), P50: float64(l.GetP50Us()) / 1000, P95: float64(l.GetP95Us()) / 1000, P99: float64(l.GetP99Us()) / 1000}
}
