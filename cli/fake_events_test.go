package cli

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// WatchEvents has events of each form from index 7 to 19; those up to 5 are gone. With
// follow, it ends when its caller leaves.
func (f *fakeLeader) WatchEvents(r *dtaskv1.WatchEventsRequest, s grpc.ServerStreamingServer[dtaskv1.WatchEventsResponse]) error {
	if r.GetAfterIndex() > 0 && r.GetAfterIndex() < 5 {
		return refusal(codes.OutOfRange, dtaskv1.ErrorReason_ERROR_REASON_COMPACTED, "events since index 3 are no longer kept at this replica, which has those since index 5")
	}
	at := noon.UnixMilli()
	if err := s.Send(&dtaskv1.WatchEventsResponse{Index: r.GetAfterIndex()}); err != nil {
		return err
	}
	for _, e := range []*dtaskv1.Event{
		{Index: 7, At: at, Kind: "job.submitted", Job: "41", Name: "nightly", Namespace: "default"},
		{Index: 8, At: at, Kind: "task.retrying", Job: "41", Name: "nightly", Namespace: "default", Task: "fetch", Attempt: 1, Worker: "1"},
		{Index: 9, At: at, Kind: "task.dead", Job: "42", Name: "train\x1b[2J", Namespace: "etl", Task: "map[3]", Attempt: 4, Worker: "2"},
		{Index: 12, At: at, Kind: "worker.up", Name: "w1", Worker: "1"},
		{Index: 12, At: at, Kind: "cluster.leader", Name: "n2", Number: 4},
		{Index: 19, At: at, Kind: "cluster.level", Number: 2},
	} {
		if e.GetIndex() <= r.GetAfterIndex() || r.GetNamespace() != "" && e.GetNamespace() != r.GetNamespace() {
			continue
		}
		if err := s.Send(&dtaskv1.WatchEventsResponse{Events: []*dtaskv1.Event{e}, Index: e.GetIndex()}); err != nil {
			return err
		}
	}
	if r.GetFollow() {
		<-s.Context().Done()
	}
	return nil
}
