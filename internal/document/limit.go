package document

import (
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Limits is a list of limits.
type Limits struct {
	Limits []Limit `json:"limits"`
}

// Limit is a named limit with what counts towards it, and waits.
type Limit struct {
	Name      string         `json:"name"`
	Version   uint32         `json:"version"`
	Running   uint32         `json:"running"`   // tasks at once; 0 = unlimited
	Rate      uint32         `json:"rate"`      // starts in each period; 0 = unlimited
	PeriodMS  uint32         `json:"period_ms"` // 0 without a rate
	Burst     uint32         `json:"burst"`     // starts at once; 0 without a rate
	SetBy     string         `json:"set_by"`    // empty: the cluster has no identities
	CreatedAt *string        `json:"created_at"`
	ChangedAt *string        `json:"changed_at"`
	Held      uint64         `json:"held"`    // attempts that count, of all keys
	Waiting   uint64         `json:"waiting"` // ready tasks, of all keys
	Counters  []LimitCounter `json:"counters"`
}

// LimitCounter is what counts towards a limit, or towards one key of it.
type LimitCounter struct {
	Use     string   `json:"use"`
	Held    uint64   `json:"held"`
	Waiting uint64   `json:"waiting"`
	Tokens  uint32   `json:"tokens"`  // starts that the rate allows now; 0 without a rate
	Holders []string `json:"holders"` // JOB/TASK
}

// DeletedLimit names a limit that was deleted.
type DeletedLimit struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
}

// NewLimits converts a list of limits.
func NewLimits(all []*dtaskv1.Limit) Limits { return Limits{Limits: list(all, NewLimit)} }

// NewLimit converts a limit.
func NewLimit(l *dtaskv1.Limit) Limit {
	s := l.GetSettings()
	return Limit{
		Name: l.GetName(), Version: l.GetVersion(), Running: s.GetRunning(), Rate: s.GetRate(), PeriodMS: s.GetPeriodMs(), Burst: s.GetBurst(), SetBy: l.GetSetBy(),
		CreatedAt: optionalTime(l.GetCreatedAt()), ChangedAt: optionalTime(l.GetChangedAt()),
		Held: l.GetHeld(), Waiting: l.GetWaiting(), Counters: list(l.GetCounters(), newLimitCounter),
	}
}

func newLimitCounter(c *dtaskv1.LimitCounter) LimitCounter {
	return LimitCounter{Use: c.GetUse(), Held: c.GetHeld(), Waiting: c.GetWaiting(), Tokens: c.GetTokens(), Holders: append([]string{}, c.GetHolders()...)}
}
