package document

import (
	"cmp"
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Queues is a list of queues.
type Queues struct {
	Queues []Queue `json:"queues"`
}

// Queue is a queue with what waits and runs in it.
type Queue struct {
	Name     string        `json:"name"`
	Version  uint32        `json:"version"` // 0: the queue default as it is at first
	State    string        `json:"state"`   // active or paused
	Settings QueueSettings `json:"settings"`
	SetBy    string        `json:"set_by"` // empty: the cluster has no identities

	CreatedAt   *string `json:"created_at"` // null: it was not set
	ChangedAt   *string `json:"changed_at"` // null: it was not set
	PausedAt    *string `json:"paused_at"`  // null: it is not paused
	PausedBy    string  `json:"paused_by"`
	PauseReason string  `json:"pause_reason"`

	Waiting    uint64  `json:"waiting"`        // ready tasks
	Running    uint64  `json:"running"`        // assigned tasks
	OldestWait float64 `json:"oldest_wait_ms"` // how long the oldest has been ready
	WaitP50    float64 `json:"wait_p50_ms"`    // from ready to assigned, of the last tasks
	WaitP99    float64 `json:"wait_p99_ms"`
}

// QueueSettings are the settings of a queue.
type QueueSettings struct {
	Weight         uint32            `json:"weight"`
	MaxRunning     uint32            `json:"max_running"` // 0 = unlimited
	Max            map[string]int64  `json:"max"`         // in thousandths of a unit
	Require        map[string]string `json:"require"`
	SubmitRate     uint32            `json:"submit_rate"`      // jobs in each period; 0 = unlimited
	SubmitPeriodMS uint32            `json:"submit_period_ms"` // 0 without a rate
	SubmitBurst    uint32            `json:"submit_burst"`
}

// QueueSummary is what an operator must know of the queues of a cluster.
type QueueSummary struct {
	Queues  int         `json:"queues"`
	Paused  []string    `json:"paused"`  // names
	Waiting []QueueWait `json:"waiting"` // the three whose oldest tasks wait longest
}

// QueueWait is for how long the oldest ready task of a queue has waited.
type QueueWait struct {
	Name       string  `json:"name"`
	OldestWait float64 `json:"oldest_wait_ms"`
}

// PausedQueue is a queue that was paused or resumed.
type PausedQueue struct {
	Queue
	Already bool `json:"already"` // nothing had to change
}

// DeletedQueue names a queue that was deleted.
type DeletedQueue struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
}

// NewQueues converts a list of queues.
func NewQueues(all []*dtaskv1.Queue) Queues { return Queues{Queues: list(all, NewQueue)} }

// NewQueue converts a queue.
func NewQueue(q *dtaskv1.Queue) Queue {
	return Queue{
		Name: q.GetName(), Version: q.GetVersion(), State: QueueState(q), Settings: newQueueSettings(q.GetSettings()), SetBy: q.GetSetBy(),
		CreatedAt: optionalTime(q.GetCreatedAt()), ChangedAt: optionalTime(q.GetChangedAt()),
		PausedAt: optionalTime(q.GetPausedAt()), PausedBy: q.GetPausedBy(), PauseReason: q.GetPauseReason(),
		Waiting: q.GetWaiting(), Running: q.GetRunning(), OldestWait: float64(q.GetOldestWaitUs()) / 1000,
		WaitP50: float64(q.GetWaitP50Us()) / 1000, WaitP99: float64(q.GetWaitP99Us()) / 1000,
	}
}

func newQueueSettings(s *dtaskv1.QueueSettings) QueueSettings {
	doc := QueueSettings{
		Weight: s.GetWeight(), MaxRunning: s.GetMaxRunning(), Max: s.GetMax(), Require: s.GetRequire(),
		SubmitRate: s.GetSubmitRate(), SubmitPeriodMS: s.GetSubmitPeriodMs(), SubmitBurst: s.GetSubmitBurst(),
	}
	if doc.Max == nil {
		doc.Max = map[string]int64{}
	}
	if doc.Require == nil {
		doc.Require = map[string]string{}
	}
	return doc
}

// maxQueueWaits is how many queues a QueueSummary names because of their waits.
const maxQueueWaits = 3

// NewQueueSummary summarizes the queues of a cluster; nil if queues are not used: then there
// is only the queue default, as it is at first.
func NewQueueSummary(all []*dtaskv1.Queue) *QueueSummary {
	if !QueuesUsed(all) {
		return nil
	}
	doc := &QueueSummary{Queues: len(all), Paused: []string{}, Waiting: []QueueWait{}}
	for _, q := range all {
		if q.GetPausedAt() != 0 {
			doc.Paused = append(doc.Paused, q.GetName())
		}
		if q.GetOldestWaitUs() > 0 {
			doc.Waiting = append(doc.Waiting, QueueWait{Name: q.GetName(), OldestWait: float64(q.GetOldestWaitUs()) / 1000})
		}
	}
	slices.SortStableFunc(doc.Waiting, func(a, b QueueWait) int { return cmp.Compare(b.OldestWait, a.OldestWait) })
	doc.Waiting = doc.Waiting[:min(len(doc.Waiting), maxQueueWaits)]
	return doc
}

// QueuesUsed reports whether there is more than the queue default as it is at first.
func QueuesUsed(all []*dtaskv1.Queue) bool {
	return slices.ContainsFunc(all, func(q *dtaskv1.Queue) bool { return q.GetVersion() != 0 || q.GetPausedAt() != 0 })
}

// QueueState returns paused or active.
func QueueState(q *dtaskv1.Queue) string {
	if q.GetPausedAt() != 0 {
		return "paused"
	}
	return "active"
}
