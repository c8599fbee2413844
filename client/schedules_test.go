package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// schedules is a ScheduleService that keeps what it gets. The first call of each method
// fails with err, if it is set.
type schedules struct {
	dtaskv1.UnimplementedScheduleServiceServer

	err   error
	sent  []*dtaskv1.SetScheduleRequest
	tasks int
	runs  []*dtaskv1.RunScheduleRequest
	fills []*dtaskv1.BackfillScheduleRequest
}

func (s *schedules) SetSchedule(stream grpc.ClientStreamingServer[dtaskv1.SetScheduleRequest, dtaskv1.SetScheduleResponse]) error {
	if err := s.err; err != nil {
		s.err = nil
		return err
	}
	s.sent, s.tasks = nil, 0
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&dtaskv1.SetScheduleResponse{Schedule: &dtaskv1.Schedule{Name: s.sent[0].GetPart().GetHeader().GetName(), Version: 1}})
		}
		if err != nil {
			return err
		}
		r, err := columns.ReadTasks(m.GetPart().GetColumns(), uint32(s.tasks))
		if err != nil {
			return err
		}
		for r.Left() > 0 {
			r.Next()
			s.tasks++
		}
		s.sent = append(s.sent, m)
	}
}

func (s *schedules) RunSchedule(_ context.Context, r *dtaskv1.RunScheduleRequest) (*dtaskv1.RunScheduleResponse, error) {
	s.runs = append(s.runs, r)
	if err := s.err; err != nil {
		s.err = nil
		return nil, err
	}
	return &dtaskv1.RunScheduleResponse{Job: "7", Existed: true, Tasks: 3}, nil
}

func (s *schedules) BackfillSchedule(_ context.Context, r *dtaskv1.BackfillScheduleRequest) (*dtaskv1.BackfillScheduleResponse, error) {
	s.fills = append(s.fills, r)
	if err := s.err; err != nil {
		s.err = nil
		return nil, err
	}
	return &dtaskv1.BackfillScheduleResponse{Runs: []*dtaskv1.BackfilledRun{{TickAt: r.GetFrom(), Job: "7"}}}, nil
}

func (s *schedules) ListSchedules(_ context.Context, r *dtaskv1.ListSchedulesRequest) (*dtaskv1.ListSchedulesResponse, error) {
	if r.GetPageToken() == "" {
		return &dtaskv1.ListSchedulesResponse{Schedules: []*dtaskv1.Schedule{{Name: "a"}, {Name: "b"}}, NextPageToken: "3"}, nil
	}
	return &dtaskv1.ListSchedulesResponse{Schedules: []*dtaskv1.Schedule{{Name: "c"}}}, nil
}

func setupSchedules(t *testing.T, err error) (*schedules, *Client) {
	t.Helper()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	s := &schedules{err: err}
	n.serve(t, "a:1", &fake{schedules: s})
	return s, c
}

// A large job has several messages, of which the first alone has the definition.
func TestALargeScheduleIsSetInParts(t *testing.T) {
	t.Parallel()
	s, c := setupSchedules(t, status.Error(codes.Unavailable, "stopping"))
	job := &dtaskv1.JobSpec{Header: &dtaskv1.JobHeader{Name: "nightly"}}
	for i := range 50_000 {
		job.Tasks = append(job.Tasks, &dtaskv1.TaskSpec{Id: fmt.Sprintf("a-task-with-a-long-name-%d", i), Body: &dtaskv1.TaskBody{}})
	}
	x, err := c.SetSchedule(t.Context(), job, &dtaskv1.ScheduleDefinition{EveryMs: 1000}, 4)
	if err != nil || x.GetName() != "nightly" {
		t.Fatalf("got %v, %v", x, err)
	}
	if s.tasks != 50_000 || len(s.sent) < 2 {
		t.Errorf("got %d tasks in %d messages", s.tasks, len(s.sent))
	}
	for i, m := range s.sent {
		first, last := i == 0, i == len(s.sent)-1
		if (m.GetDefinition() != nil) != first || (m.GetIfVersion() == 4) != first || (m.GetPart().GetHeader() != nil) != first || m.GetPart().GetMore() == last {
			t.Errorf("message %d has definition %v, version %d, more = %t", i, m.GetDefinition(), m.GetIfVersion(), m.GetPart().GetMore())
		}
	}
}

// The key of a call covers its retries, so that none of them starts another run.
func TestARetriedRunKeepsItsKey(t *testing.T) {
	t.Parallel()
	s, c := setupSchedules(t, status.Error(codes.Unavailable, "stopping"))
	run, err := c.RunSchedule(t.Context(), ScheduleName{Namespace: "etl", Name: "nightly"}, "")
	if err != nil || run != (ScheduleRun{Job: "7", Existed: true, Tasks: 3}) {
		t.Errorf("got %+v, %v", run, err)
	}
	if len(s.runs) != 2 || s.runs[0].GetIdempotencyKey() == "" || s.runs[0].GetIdempotencyKey() != s.runs[1].GetIdempotencyKey() || !s.runs[0].GetGeneratedKey() {
		t.Errorf("got requests %v", s.runs)
	}
	s.err = status.Error(codes.Unavailable, "stopping")
	runs, err := c.BackfillSchedule(t.Context(), ScheduleName{Name: "nightly"}, time.UnixMilli(5000), time.UnixMilli(9000), "")
	if err != nil || len(runs) != 1 || runs[0].GetTickAt() != 5000 {
		t.Errorf("got %v, %v", runs, err)
	}
	if len(s.fills) != 2 || s.fills[0].GetIdempotencyKey() == "" || s.fills[0].GetIdempotencyKey() != s.fills[1].GetIdempotencyKey() {
		t.Errorf("got requests %v", s.fills)
	}
}

func TestSchedulesAreListedOverAllPages(t *testing.T) {
	t.Parallel()
	_, c := setupSchedules(t, nil)
	names := ""
	for x, err := range c.Schedules(t.Context(), ScheduleFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		names += x.GetName()
	}
	if names != "abc" {
		t.Errorf("got %s", names)
	}
}

func TestAScheduleThatIsNotValidIsNotRetried(t *testing.T) {
	t.Parallel()
	s, c := setupSchedules(t, refusal(codes.InvalidArgument, "invalid request", &dtaskv1.ErrorDetail{
		Reason: dtaskv1.ErrorReason_ERROR_REASON_INVALID, Faults: []string{"definition: never fires"},
	}))
	_, err := c.SetSchedule(t.Context(), oneTask(), &dtaskv1.ScheduleDefinition{}, 0)
	if !errors.Is(err, ErrInvalid) || len(s.sent) != 0 {
		t.Errorf("got %v, and %d messages", err, len(s.sent))
	}
}
