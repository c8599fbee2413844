package client

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

var (
	clusterA = strings.Repeat("a", 32)
	clusterB = strings.Repeat("b", 32)
)

// member returns a coordinator of a cluster. It answers like a real one: it announces
// its cluster and refuses calls that name another.
func member(id string) *fake {
	return &fake{
		cluster: id,
		getJob:  func(job string) (*dtaskv1.Job, error) { return &dtaskv1.Job{Id: job, Name: id}, nil },
		submit: func(string, *dtaskv1.JobHeader, []*dtaskv1.TaskSpec) (*dtaskv1.StoredJob, error) {
			return &dtaskv1.StoredJob{Id: id}, nil
		},
		watch: func(s grpc.ServerStreamingServer[dtaskv1.WatchJobResponse]) error {
			return s.Send(&dtaskv1.WatchJobResponse{Index: 1, Job: &dtaskv1.Job{Name: id, State: dtaskv1.JobState_JOB_STATE_COMPLETED}})
		},
	}
}

// check is the cluster check of a coordinator.
func (f *fake) check(md metadata.MD, method string, announce func(metadata.MD) error) error {
	if f.cluster == "" {
		return nil
	}
	if err := announce(metadata.Pairs(clusterKey, f.cluster)); err != nil {
		return err
	}
	if got := md.Get(clusterKey); len(got) > 0 && got[0] != f.cluster && method != dtaskv1.ClusterService_Identify_FullMethodName {
		return refusal(codes.FailedPrecondition, "another cluster", &dtaskv1.ErrorDetail{
			Reason: dtaskv1.ErrorReason_ERROR_REASON_FOREIGN_CLUSTER, ClusterId: f.cluster,
		})
	}
	return nil
}

func TestAClientKeepsTheClusterThatAnswersFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1", "b:1", "a2:1"}})
		a, b, a2 := member(clusterA), member(clusterB), member(clusterA)
		n.serve(t, "a:1", a)
		n.serve(t, "b:1", b)
		n.serve(t, "a2:1", a2)
		if _, err := c.Job(t.Context(), "1", ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		a.getJob = func(string) (*dtaskv1.Job, error) { return nil, notLeader("b:1") } // its leader's address was reused
		if job, err := c.Job(t.Context(), "1", ReadOptions{}); err != nil || job.GetName() != clusterA {
			t.Fatalf("got %v, %v; want the job of the first cluster", job, err)
		}
		a.getJob = func(string) (*dtaskv1.Job, error) { return nil, notLeader("") }
		if order := c.book.order(); order[2] != "b:1" {
			t.Errorf("got order %v, want the other cluster last", order)
		}
		if got := c.ForeignAddresses(); len(got) != 1 || got[0] != (ForeignAddress{Address: "b:1", Cluster: clusterB, Own: clusterA}) {
			t.Errorf("got foreign addresses %v, want b:1 once", got)
		}
		<-time.After(foreignRetryDelay + time.Second)
		if got := c.book.rank("b:1", time.Now()); got != 0 {
			t.Errorf("after a minute: got rank %d, want the other cluster in its turn", got)
		}
	})
}

func TestStreamsAreRefusedByAnotherCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"b:1", "a:1"}, Cluster: clusterA})
		b := member(clusterB)
		n.serve(t, "b:1", b)
		n.serve(t, "a:1", member(clusterA))
		if got, err := c.Submit(t.Context(), oneTask(), SubmitOptions{}); err != nil || got.ID != clusterA {
			t.Errorf("Submit: got %v, %v; want it stored in cluster a", got, err)
		}
		for job, err := range c.Watch(t.Context(), "1") {
			if err != nil || job.GetName() != clusterA {
				t.Errorf("Watch: got %v, %v; want the job of cluster a", job, err)
			}
		}
		if got := b.calls.Load(); got != 0 {
			t.Errorf("got %d calls in cluster b, want 0", got)
		}
	})
}

func TestOnlyForeignAddressesAreADefiniteErrorAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"b:1"}, Cluster: clusterA})
		n.serve(t, "b:1", member(clusterB))
		began := time.Now()
		_, submitting := c.Submit(t.Context(), oneTask(), SubmitOptions{Key: "k"})
		_, reading := c.Job(t.Context(), "1", ReadOptions{})
		_, asking := c.ClusterStatus(t.Context())
		for _, err := range []error{submitting, reading, asking} {
			e, ok := errors.AsType[*Error](err)
			if !ok || !errors.Is(err, ErrForeignCluster) || e.Unknown {
				t.Errorf("got %v, want a definite ErrForeignCluster", err)
				continue
			}
			for _, part := range []string{"b:1", clusterA, clusterB, "check the addresses"} {
				if !strings.Contains(e.Message, part) {
					t.Errorf("%q is missing in %q", part, e.Message)
				}
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %s, want no retries", took)
		}
	})
}

func TestAMalformedClusterIDIsInvalid(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"x", strings.Repeat("A", 32), strings.Repeat("a", 33)} {
		if _, err := New(Config{Cluster: id}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "32 hexadecimal digits") {
			t.Errorf("%q: got %v, want ErrInvalid", id, err)
		}
	}
}

func TestTheClusterIsKnownAfterTheFirstResponse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1"}})
		n.serve(t, "a:1", member(clusterA))
		if got := c.Cluster(); got != "" {
			t.Errorf("before a response: got %q, want none", got)
		}
		if _, err := c.Submit(t.Context(), oneTask(), SubmitOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := c.Cluster(); got != clusterA {
			t.Errorf("after a submission: got %q, want %q", got, clusterA)
		}
		_, configured := setup(t, Config{Addrs: []string{"a:1"}, Cluster: clusterB})
		if got := configured.Cluster(); got != clusterB {
			t.Errorf("configured: got %q, want %q", got, clusterB)
		}
	})
}

func TestAMalformedClusterIDIsNotReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1"}})
		n.serve(t, "a:1", member("../../etc/passwd"))
		if _, err := c.Job(t.Context(), "1", ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := c.Cluster(); got != "" {
			t.Errorf("got %q, want none", got)
		}
	})
}
