package cli

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func (f *fakeLeader) Status(context.Context, *dtaskv1.StatusRequest) (*dtaskv1.StatusResponse, error) {
	return &dtaskv1.StatusResponse{Leader: "n1", Term: 3, Replica: "n1", ClusterId: fakeCluster, Name: f.name(), Members: []*dtaskv1.Member{
		{Id: "n1", Address: f.addr, State: "leader", Applied: 120, Version: "v1", Voter: true, HistoryImport: &dtaskv1.HistoryImport{Jobs: 1_000_000, Left: 420_000}},
		{Id: "n2", Address: "10.0.0.2:7460", State: "unreachable", Applied: 100, Lag: 20},
	}, Alarms: []*dtaskv1.Alarm{
		{Member: "n2", Kind: "unreachable", Message: "does not answer: start it"},
		{Member: "n3", Kind: "history-conflict", Message: "it \x1bknows more", Since: timestamppb.New(noon.Add(-time.Minute))},
	}}, nil
}

// name is the name of the fake cluster.
func (f *fakeLeader) name() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clusterName
}

func (f *fakeLeader) SetClusterName(_ context.Context, r *dtaskv1.SetClusterNameRequest) (*dtaskv1.SetClusterNameResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	already := f.clusterName == r.GetName()
	f.clusterName = r.GetName()
	return &dtaskv1.SetClusterNameResponse{Already: already}, nil
}

func (f *fakeLeader) AddMember(_ context.Context, r *dtaskv1.AddMemberRequest) (*dtaskv1.AddMemberResponse, error) {
	if r.GetServerId() == "gone" {
		return nil, refusal(codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED, "server ID gone was removed")
	}
	return &dtaskv1.AddMemberResponse{}, nil
}

func (f *fakeLeader) RemoveMember(_ context.Context, r *dtaskv1.RemoveMemberRequest) (*dtaskv1.RemoveMemberResponse, error) {
	return &dtaskv1.RemoveMemberResponse{AlreadyRemoved: r.GetServerId() == "gone"}, nil
}

func (f *fakeLeader) TransferLeadership(context.Context, *dtaskv1.TransferLeadershipRequest) (*dtaskv1.TransferLeadershipResponse, error) {
	return &dtaskv1.TransferLeadershipResponse{}, nil
}

func (f *fakeLeader) ListWorkers(_ context.Context, r *dtaskv1.ListWorkersRequest) (*dtaskv1.ListWorkersResponse, error) {
	if f.hasNoWorker() {
		return &dtaskv1.ListWorkersResponse{Workers: []*dtaskv1.Worker{{Id: "1", Name: "w1", State: "down", Slots: 8}}}, nil
	}
	resp := &dtaskv1.ListWorkersResponse{Freshness: fresh()}
	for _, w := range []*dtaskv1.Worker{
		f.firstWorker(),
		{Id: "2", Name: "w2\x1b[2J", State: "down", Slots: 4, UpSince: ago(5 * time.Hour), DownSince: ago(90 * time.Second)},
	} {
		if (r.GetName() == "" || r.GetName() == w.GetName()) && w.GetId() > r.GetPageToken() {
			resp.Workers = append(resp.Workers, w)
		}
	}
	if n := int(r.GetLimit()); n > 0 && len(resp.GetWorkers()) > n {
		resp.Workers, resp.NextPageToken = resp.GetWorkers()[:n], resp.GetWorkers()[n-1].GetId()
	}
	return resp, nil
}

func (f *fakeLeader) Stats(context.Context, *dtaskv1.StatsRequest) (*dtaskv1.StatsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &dtaskv1.StatsResponse{Entries: 10 + 2*f.runs, Operations: 100 + 50*f.runs, Bytes: 1000 * f.runs, Syncs: 3 * f.runs}, nil
}

func (f *fakeLeader) Identify(context.Context, *dtaskv1.IdentifyRequest) (*dtaskv1.IdentifyResponse, error) {
	return &dtaskv1.IdentifyResponse{ServerId: "n1", State: "leader", LeaderId: "n1", Version: "v0.1.0"}, nil
}

func (f *fakeFollower) Status(context.Context, *dtaskv1.StatusRequest) (*dtaskv1.StatusResponse, error) {
	return &dtaskv1.StatusResponse{Term: 4, Replica: "n2", Members: []*dtaskv1.Member{{Id: "n2", Address: "x:1", State: "candidate"}}}, nil
}

func (f *fakeFollower) Identify(context.Context, *dtaskv1.IdentifyRequest) (*dtaskv1.IdentifyResponse, error) {
	return &dtaskv1.IdentifyResponse{ServerId: "n2", State: "follower", LeaderId: "n1"}, nil
}

// redirect answers the methods that the follower doesn't implement.
func (f *fakeFollower) redirect(any, grpc.ServerStream) error {
	return withDetail(codes.FailedPrecondition, "not the leader", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER, LeaderAddress: f.leader})
}
