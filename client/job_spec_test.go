package client

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A storing is a coordinator that streams the parts of jobs and records what it read.
type storing struct {
	fake

	job *dtaskv1.JobSpec

	mu    sync.Mutex
	reads int
	stale bool // of the last read
}

// GetJobSpec ends the first stream after its first part.
func (s *storing) GetJobSpec(r *dtaskv1.GetJobSpecRequest, stream grpc.ServerStreamingServer[dtaskv1.GetJobSpecResponse]) error {
	if r.GetJob() != "42" {
		return refusal(codes.NotFound, "not found", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND})
	}
	s.mu.Lock()
	s.reads++
	cut := s.reads == 1
	s.stale = r.GetConsistency() == dtaskv1.Consistency_CONSISTENCY_STALE
	s.mu.Unlock()
	parts := newJobParts(s.job, &dtaskv1.JobPart{Header: s.job.GetHeader(), Total: uint32(len(s.job.GetTasks()))}) //nolint:gosec // a few
	f := &dtaskv1.Freshness{AppliedIndex: 9, Replica: "n1"}
	for more := true; more; {
		part, _, err := parts.next()
		if err != nil {
			return err
		}
		if err := stream.Send(&dtaskv1.GetJobSpecResponse{Part: part, Freshness: f}); err != nil {
			return err
		}
		if f, more = nil, part.GetMore(); cut {
			return status.Error(codes.Unavailable, "cut")
		}
	}
	return nil
}

func TestAJobThatWasReadIsSubmittedAgainWithItsTasks(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	s := &storing{job: &dtaskv1.JobSpec{Header: &dtaskv1.JobHeader{Name: "etl"}}}
	for i := range uint32(9000) { // several parts
		t := &dtaskv1.TaskSpec{Id: fmt.Sprint("t", i), Body: &dtaskv1.TaskBody{Payload: make([]byte, 200)}}
		if i > 0 {
			t.Dependencies = []uint32{i / 2}
		}
		s.job.Tasks = append(s.job.GetTasks(), t)
	}
	busy := 1
	s.submit = func(key string, h *dtaskv1.JobHeader, tasks []*dtaskv1.TaskSpec) (*dtaskv1.StoredJob, error) {
		if busy--; busy == 0 {
			return nil, errBusy // all parts must be sent again
		}
		if got := (&dtaskv1.JobSpec{Header: h, Tasks: tasks}); h.GetName() != "again" || key != "k" || len(tasks) != len(s.job.GetTasks()) || !proto.Equal(got.GetTasks()[8999], s.job.GetTasks()[8999]) {
			t.Errorf("got %s with %d tasks and key %s", h.GetName(), len(tasks), key)
		}
		return &dtaskv1.StoredJob{Id: "43"}, nil
	}
	n.serveAs(t, "a:1", &s.fake, s)
	replica := ""
	job, err := c.JobSpec(t.Context(), "42", ReadOptions{Stale: true, Fresh: func(f *dtaskv1.Freshness) { replica = f.GetReplica() }})
	if err != nil {
		t.Fatal(err)
	}
	if s.reads != 2 || !s.stale || replica != "n1" || len(job.parts) < 2 || job.Tasks() != 9000 || job.Header().GetName() != "etl" {
		t.Fatalf("got %d parts of %d tasks in %d reads, stale %t, replica %q", len(job.parts), job.Tasks(), s.reads, s.stale, replica)
	}
	job.Header().Name = "again"
	got, err := c.SubmitSpec(t.Context(), job, SubmitOptions{Key: "k"})
	if err != nil || got.ID != "43" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAnUnknownJobHasNoSpec(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	s := &storing{}
	n.serveAs(t, "a:1", &s.fake, s)
	if _, err := c.JobSpec(t.Context(), "7", ReadOptions{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
