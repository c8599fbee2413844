package cli

import (
	"context"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Load is that of a leader of three minutes, which completes 500 tasks between two calls.
func (f *fakeLeader) Load(context.Context, *dtaskv1.LoadRequest) (*dtaskv1.LoadResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loads++
	fast := &dtaskv1.Latency{Count: 9, P50Us: 250, P95Us: 1_200, P99Us: 12_000}
	counts := func(n uint64) *dtaskv1.LoadCounts {
		return &dtaskv1.LoadCounts{Submitted: n / 100, Assigned: n, Completed: n, Failed: n / 1000}
	}
	return &dtaskv1.LoadResponse{
		Leader: "n1", Term: 3, At: noon.UnixMilli() + 1000*f.loads, Workers: 2, Slots: 12, Running: 14, Orphaned: 1, Unplaceable: 3, OldestMs: 95_000,
		Queues: f.queues,
		Totals: counts(100_000 + 500*uint64(f.loads)), //nolint:gosec // small
		Ready: []*dtaskv1.ReadyTasks{
			{Priority: dtaskv1.Priority_PRIORITY_URGENT}, {Priority: dtaskv1.Priority_PRIORITY_HIGH, Tasks: 5}, {Priority: dtaskv1.Priority_PRIORITY_NORMAL, Tasks: 12_345},
		},
		Windows: []*dtaskv1.LoadWindow{
			{WindowMs: 60_000, CoveredMs: 61_000, Counts: counts(61_000), Wait: fast, Run: &dtaskv1.Latency{Count: 9, P50Us: 1_500_000, P95Us: 70_000_000, P99Us: 4_000_000_000}},
			{WindowMs: 300_000, CoveredMs: 180_000, Counts: counts(90_000), Wait: fast, Run: fast},
			{WindowMs: 3_600_000, CoveredMs: 180_000, Counts: counts(90), Wait: &dtaskv1.Latency{}, Run: &dtaskv1.Latency{}},
		},
	}, nil
}
