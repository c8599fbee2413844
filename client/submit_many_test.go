package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

var (
	errBusy    = refusal(codes.ResourceExhausted, "full", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_BUSY, RetryAfterMs: 1})
	errFaulty  = refusal(codes.InvalidArgument, "no good", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_INVALID, Faults: []string{"x: y"}})
	errNoInput = refusal(codes.Unavailable, "gone", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN})
)

func small(name string, payload int) Submission {
	return Submission{Job: &dtaskv1.JobSpec{
		Header: &dtaskv1.JobHeader{Name: name},
		Tasks:  []*dtaskv1.TaskSpec{{Id: "t", Body: &dtaskv1.TaskBody{Payload: []byte(strings.Repeat("p", payload))}}},
	}}
}

func TestManyJobsShareMessagesAndEachHasItsOwnResult(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}, Timeout: 5 * time.Minute})
	messages, seen := 0, map[string]int{}
	f := &fake{message: func(m *dtaskv1.SubmitRequest) (results []*dtaskv1.SubmitResult, _ error) {
		messages++
		for _, p := range m.GetParts() {
			name := p.GetHeader().GetName()
			if p.GetMore() || name == "" {
				continue // the large job, which submit stores
			}
			seen[name]++
			result := resultOf(p.GetJob())
			switch {
			case p.GetIdempotencyKey() == "" || int(p.GetTotal()) != len(tasksOf(p, 0)):
				t.Errorf("incomplete: %v", p)
			case name == "job7":
				results = append(results, result(nil, errFaulty))
			case name == "job8" && seen[name] == 1:
				results = append(results, result(nil, errBusy))
			default:
				results = append(results, result(&dtaskv1.StoredJob{Id: name[3:], Existed: seen[name] > 1}, nil))
			}
		}
		return results, nil
	}, submit: func(string, *dtaskv1.JobHeader, []*dtaskv1.TaskSpec) (*dtaskv1.StoredJob, error) {
		return &dtaskv1.StoredJob{Id: "large"}, nil
	}}
	n.serve(t, "a:1", f)
	huge := small("huge", 300<<10)
	huge.Job.Tasks = append(huge.Job.GetTasks(), &dtaskv1.TaskSpec{Id: "u", Body: huge.Job.GetTasks()[0].GetBody()})
	var jobs []Submission
	for i := range 600 {
		jobs = append(jobs, small(fmt.Sprint("job", i), 10))
	}
	jobs = append(jobs, huge, Submission{Job: &dtaskv1.JobSpec{}})
	for i, got := range c.SubmitMany(t.Context(), jobs) {
		switch {
		case i == 7:
			var e *Error
			if !errors.As(got.Err, &e) || !errors.Is(e, ErrInvalid) || len(e.Faults) != 1 {
				t.Errorf("job 7: got %+v", got)
			}
		case i == 600:
			if got.Err != nil || got.ID != "large" {
				t.Errorf("the large job: got %+v", got)
			}
		case i == 601:
			if !errors.Is(got.Err, ErrInvalid) {
				t.Errorf("the empty job: got %+v", got)
			}
		case got.Err != nil || got.ID != fmt.Sprint(i) || got.Existed != (i == 8) || got.Key == "":
			t.Errorf("job %d: got %+v", i, got)
		}
	}
	if messages > 5 || seen["job8"] != 2 || seen["job9"] != 1 || f.streams.Load() != 1 {
		t.Errorf("got %d messages on %d streams, with job 8 %d times and job 9 %d times", messages, f.streams.Load(), seen["job8"], seen["job9"])
	}
}

func TestMoreJobsThanMayBeInFlightAreAllStored(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}, Timeout: 5 * time.Minute})
	n.serve(t, "a:1", &fake{submit: func(key string, _ *dtaskv1.JobHeader, _ []*dtaskv1.TaskSpec) (*dtaskv1.StoredJob, error) {
		return &dtaskv1.StoredJob{Id: key}, nil
	}})
	jobs := make([]Submission, 2*maxInFlight+1)
	for i := range jobs {
		jobs[i] = small("j", 1)
		jobs[i].Key = fmt.Sprint(i)
	}
	for i, got := range c.SubmitMany(t.Context(), jobs) {
		if got.Err != nil || got.ID != fmt.Sprint(i) {
			t.Fatalf("job %d: got %+v", i, got)
		}
	}
}

func TestJobsOfAMessageWithTheSameHeaderSendItOnce(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}, Timeout: 5 * time.Minute})
	var sent []string
	f := &fake{message: func(m *dtaskv1.SubmitRequest) (results []*dtaskv1.SubmitResult, _ error) {
		for i, p := range m.GetParts() {
			sent = append(sent, p.GetHeader().GetName())
			err := error(nil)
			if len(sent) == 5 || i == 1 { // sent again, the second job needs the header again
				err = errBusy
			}
			if p.GetIdempotencyKey() == "" || p.GetTotal() != 1 || len(tasksOf(p, 0)) != 1 {
				t.Errorf("incomplete: %v", p)
			}
			stored := &dtaskv1.StoredJob{Id: "1"}
			if err != nil {
				stored = nil
			}
			results = append(results, resultOf(p.GetJob())(stored, err))
		}
		return results, nil
	}}
	n.serve(t, "a:1", f)
	a, b := small("a", 1), small("b", 1)
	for i, got := range c.SubmitMany(t.Context(), []Submission{a, a, a, b, small("b", 1)}) {
		if got.Err != nil || got.ID != "1" {
			t.Errorf("job %d: got %+v", i, got)
		}
	}
	if want := []string{"a", "", "", "b", "b", "a", "b", "b"}; !slices.Equal(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
}

func TestManyJobsThatNoCoordinatorAcceptsAreAllUnreachable(t *testing.T) {
	t.Parallel()
	_, c := setup(t, Config{Addrs: []string{"a:1"}, Timeout: 100 * time.Millisecond})
	for i, got := range c.SubmitMany(t.Context(), []Submission{small("a", 1), small("b", 1)}) {
		var e *Error
		if !errors.As(got.Err, &e) || !errors.Is(e, ErrUnreachable) || e.Key != got.Key || got.Key == "" || e.Unknown {
			t.Errorf("job %d: got %+v", i, got)
		}
	}
}

func TestJobThatCannotBeEncodedFailsAlone(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}, Timeout: 5 * time.Minute})
	n.serve(t, "a:1", &fake{submit: func(_ string, h *dtaskv1.JobHeader, _ []*dtaskv1.TaskSpec) (*dtaskv1.StoredJob, error) {
		return &dtaskv1.StoredJob{Id: h.GetName()}, nil
	}})
	spoiled := small("\xff", 1)
	task := small("task", 1)
	task.Job.Tasks[0].Body.Run = "\xff"
	second := spoiled // without its header in the message
	for i, got := range c.SubmitMany(t.Context(), []Submission{small("a", 1), spoiled, second, task, small("b", 1)}) {
		if sound := i == 0 || i == 4; sound && got.Err != nil || !sound && !errors.Is(got.Err, ErrInvalid) {
			t.Errorf("job %d: got %+v", i, got)
		}
	}
}
