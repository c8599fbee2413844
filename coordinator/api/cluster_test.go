package api

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestACallThatNamesAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	r := setup(t)
	foreign := metadata.AppendToOutgoingContext(t.Context(), clusterKey, "ffff")
	var header metadata.MD
	_, err := r.admin.Stats(foreign, &dtaskv1.StatsRequest{}, grpc.Header(&header))
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_FOREIGN_CLUSTER)
	if got := header.Get(clusterKey); len(got) != 1 || got[0] != testCluster {
		t.Errorf("unary: got header %q, want %s", got, testCluster)
	}
	stream, err := r.jobs.ListTasks(foreign, &dtaskv1.ListTasksRequest{Job: "1"})
	if err == nil {
		_, err = stream.Recv()
	}
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_FOREIGN_CLUSTER)
	both := metadata.AppendToOutgoingContext(foreign, clusterKey, testCluster)
	_, err = r.admin.Stats(both, &dtaskv1.StatsRequest{})
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_FOREIGN_CLUSTER)
}

func TestEachResponseAnnouncesTheCluster(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for _, name := range []string{"", testCluster} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), clusterKey, name)
		var header metadata.MD
		if _, err := r.admin.Stats(ctx, &dtaskv1.StatsRequest{}, grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
		if got := header.Get(clusterKey); len(got) != 1 || got[0] != testCluster {
			t.Errorf("named %q: got header %q, want %s", name, got, testCluster)
		}
	}
}

func TestAReplicaThatDoesNotKnowItsClusterNeitherRefusesNorAnnounces(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) { c.ClusterID = func() string { return "" } })
	ctx := metadata.AppendToOutgoingContext(t.Context(), clusterKey, "ffff")
	var header metadata.MD
	if _, err := r.admin.Stats(ctx, &dtaskv1.StatsRequest{}, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	if got := header.Get(clusterKey); len(got) != 0 {
		t.Errorf("got header %q, want none", got)
	}
}
