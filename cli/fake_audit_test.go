package cli

import (
	"context"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func (f *fakeLeader) AuditHeads(context.Context, *dtaskv1.AuditHeadsRequest) (*dtaskv1.AuditHeadsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &dtaskv1.AuditHeadsResponse{Heads: f.auditHeads}, nil
}
