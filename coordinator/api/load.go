package api

import (
	"context"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Load is how much a leader does.
type Load struct {
	Term    uint64
	At      time.Time // wall clock
	Windows []LoadWindow
	Totals  sequencer.Stats // of this process
	// Ready is the number of ready tasks by priority, as the API names it, the most urgent first.
	Ready       []ReadyTasks
	Oldest      time.Duration // of the oldest ready task
	Unplaceable int64         // ready tasks that no worker could run
	Held        int64         // attempts on workers
	Orphaned    int64         // of those, on workers without a session
	Workers     int64         // with a session
	Slots       uint64        // of the workers that are up
	// Queues is the load of each queue as it was counted last; nil: unknown.
	Queues map[string]sequencer.QueueLoad
}

// LoadWindow is what a leader did in the last time.
type LoadWindow struct {
	Window    time.Duration
	Covered   time.Duration   // how much of it the leader knows
	Counts    sequencer.Stats // in that time
	Wait, Run sequencer.Counts
}

// ReadyTasks is a number of ready tasks.
type ReadyTasks struct {
	Priority dtaskv1.Priority
	Tasks    int64
}

// Load implements AdminService. The leader answers without confirmation: a deposed one
// answers for up to its lease.
func (a *admin) Load(context.Context, *dtaskv1.LoadRequest) (*dtaskv1.LoadResponse, error) {
	if a.cfg.Load == nil {
		return nil, &Error{Kind: KindBusy, Message: "this coordinator does not measure its load yet"}
	}
	l := a.cfg.Load()
	if l == nil {
		return nil, errNotLeader
	}
	resp := &dtaskv1.LoadResponse{
		Leader: a.cfg.ServerID, Term: l.Term, At: l.At.UnixMilli(), Totals: showCounts(l.Totals), OldestMs: l.Oldest.Milliseconds(),
		Unplaceable: count(l.Unplaceable), Running: count(l.Held), Orphaned: count(l.Orphaned), Workers: count(l.Workers), Slots: l.Slots,
	}
	for _, r := range l.Ready {
		resp.Ready = append(resp.Ready, &dtaskv1.ReadyTasks{Priority: r.Priority, Tasks: count(r.Tasks)})
	}
	a.cfg.Machine.Read(func(st *fsm.State, _ uint64) { resp.Queues = allQueues(st) })
	addLoads(resp.GetQueues(), l.Queues)
	for i := range l.Windows {
		w := &l.Windows[i]
		resp.Windows = append(resp.Windows, &dtaskv1.LoadWindow{
			WindowMs: w.Window.Milliseconds(), CoveredMs: w.Covered.Milliseconds(), Counts: showCounts(w.Counts), Wait: latency(&w.Wait), Run: latency(&w.Run),
		})
	}
	return resp, nil
}

// count is a gauge, which may be below 0 for an instant while others change it.
func count(n int64) uint64 { return uint64(max(n, 0)) } //nolint:gosec // not negative

func showCounts(s sequencer.Stats) *dtaskv1.LoadCounts {
	return &dtaskv1.LoadCounts{Submitted: s.Submissions, Assigned: s.Assignments, Completed: s.Completions, Failed: s.Failures}
}

func latency(c *sequencer.Counts) *dtaskv1.Latency {
	return &dtaskv1.Latency{
		Count: c.N, P50Us: c.Quantile(500).Microseconds(), P95Us: c.Quantile(950).Microseconds(), P99Us: c.Quantile(990).Microseconds(),
	}
}
