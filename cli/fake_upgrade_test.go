package cli

import (
	"context"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// fakeUpgrade is the upgrade of the fake cluster. The lock of the fakeLeader guards it.
type fakeUpgrade struct{ held, finished bool }

func (f *fakeLeader) UpgradeStatus(context.Context, *dtaskv1.UpgradeStatusRequest) (*dtaskv1.UpgradeStatusResponse, error) {
	s := &dtaskv1.UpgradeStatusResponse{
		Level: 1, State: "mixed", Supported: 1, Next: "n2", Members: []*dtaskv1.Member{
			{Id: "n1", Address: "10.0.0.1:7460", State: "leader", Version: "v0.1.0", MinLevel: 1, MaxLevel: 1, Voter: true},
			{Id: "n2", Address: "10.0.0.2:7460", State: "follower", Version: "v0.1.0", Voter: true},
			{Id: "n3", Address: "10.0.0.3:7460", State: "follower", Version: "v0.2.0", MinLevel: 1, MaxLevel: 2, Voter: true},
		},
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Held = f.held
	if f.finished {
		s.Level, s.State, s.Supported = 2, "complete", 2
		s.Members = s.GetMembers()[2:]
	}
	return s, nil
}

func (f *fakeLeader) FinishUpgrade(context.Context, *dtaskv1.FinishUpgradeRequest) (*dtaskv1.FinishUpgradeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	already := f.finished
	f.finished, f.held = true, false
	return &dtaskv1.FinishUpgradeResponse{Level: 2, Already: already}, nil
}

func (f *fakeLeader) HoldUpgrade(_ context.Context, r *dtaskv1.HoldUpgradeRequest) (*dtaskv1.HoldUpgradeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.finished {
		return nil, refusal(codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED, "server n2 does not answer")
	}
	already := f.held != r.GetRelease()
	f.held = !r.GetRelease()
	return &dtaskv1.HoldUpgradeResponse{Level: 1, Already: already}, nil
}
