package api

import (
	"context"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// admin implements AdminService.
type admin struct {
	dtaskv1.UnimplementedAdminServiceServer
	*Server
}

// Stats implements AdminService.
func (a *admin) Stats(context.Context, *dtaskv1.StatsRequest) (*dtaskv1.StatsResponse, error) {
	totals, process := a.cfg.Totals(), a.cfg.Process()
	return &dtaskv1.StatsResponse{
		Entries: totals.Entries, Operations: totals.Operations, Bytes: totals.Bytes,
		Assignments: totals.Assignments, Completions: totals.Completions,
		Syncs: process.Syncs, LeaderChanges: process.LeaderChanges,
		AppliedIndex: a.cfg.Machine.Index(), HeapBytes: liveHeapBytes(), RssBytes: residentBytes(),
	}, nil
}
