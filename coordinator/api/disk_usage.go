package api

import (
	"context"
	"fmt"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Disk is how much space the files of a replica take.
type Disk struct {
	Parts      []DiskPart // in the order in which they are shown
	Free, Size uint64     // bytes of the disk; Size 0: both are unknown
}

// DiskPart is a part of the files.
type DiskPart struct {
	Name  string
	Bytes uint64
}

// DiskUsage implements AdminService. It encodes a fork of the state, while the replica
// continues to apply entries.
func (a *admin) DiskUsage(context.Context, *dtaskv1.DiskUsageRequest) (*dtaskv1.DiskUsageResponse, error) {
	if a.cfg.Disk == nil {
		return nil, &Error{Kind: KindBusy, Message: "this coordinator cannot measure its files yet"}
	}
	if !a.sizings.TryAcquire(1) {
		return nil, &Error{Kind: KindBusy, Message: "this coordinator is measuring its state for another caller"}
	}
	defer a.sizings.Release(1)
	disk, err := a.cfg.Disk()
	if err != nil {
		return nil, fmt.Errorf("measuring files: %w", err)
	}
	snapshot := a.cfg.Machine.Snapshot()
	defer snapshot.Release()
	resp := &dtaskv1.DiskUsageResponse{
		ServerId: a.cfg.ServerID, AppliedIndex: snapshot.Index(), HeapBytes: liveHeapBytes(), DiskFreeBytes: disk.Free, DiskBytes: disk.Size,
	}
	for _, k := range snapshot.State().Sizes() {
		resp.State = append(resp.State, &dtaskv1.Size{Kind: k.Kind, Bytes: k.Bytes})
	}
	for _, p := range disk.Parts {
		resp.Files = append(resp.Files, &dtaskv1.Size{Kind: p.Name, Bytes: p.Bytes})
	}
	return resp, nil
}
