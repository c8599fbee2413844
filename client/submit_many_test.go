package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func small(name string, payload int) Submission {
	return Submission{Job: &dtaskv1.JobSpec{
		Header: &dtaskv1.JobHeader{Name: name},
		Tasks:  []*dtaskv1.TaskSpec{{Id: "t", Body: &dtaskv1.TaskBody{Payload: []byte(strings.Repeat("p", payload))}}},
	}}
}

func TestManyJobsGoInFewCallsAndWhatIsLeftGoesAgain(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}, Timeout: 30 * time.Second})
	calls, seen := 0, map[string]int{}
	f := &fake{submitMany: func(jobs []*dtaskv1.SubmitRequest) []*dtaskv1.SubmitAnswer {
		calls++
		var answers []*dtaskv1.SubmitAnswer
		for _, j := range jobs {
			name := j.GetHeader().GetName()
			seen[name]++
			switch {
			case j.GetIdempotencyKey() == "" || int(j.GetTotal()) != len(tasksOf(j, 0)):
				t.Errorf("incomplete: %v", j)
				fallthrough
			case name == "job7":
				answers = append(answers, &dtaskv1.SubmitAnswer{
					Code: int32(codes.InvalidArgument), Message: "no good",
					Detail: &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_INVALID, Faults: []string{"x: y"}},
				})
			case name == "job8" && seen[name] == 1:
				answers = append(answers, &dtaskv1.SubmitAnswer{
					Code: int32(codes.ResourceExhausted), Message: "full",
					Detail: &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_BUSY, RetryAfterMs: 1},
				})
			default:
				answers = append(answers, &dtaskv1.SubmitAnswer{Stored: &dtaskv1.SubmitResponse{Id: name[3:], Existed: seen[name] > 1}})
			}
		}
		return answers
	}, submit: func(string, *dtaskv1.JobHeader, []*dtaskv1.TaskSpec) (*dtaskv1.SubmitResponse, error) {
		return &dtaskv1.SubmitResponse{Id: "large"}, nil
	}}
	n.serve(t, "a:1", f)
	huge := small("huge", 300<<10)
	huge.Job.Tasks = append(huge.Job.GetTasks(), &dtaskv1.TaskSpec{Id: "u", Body: huge.Job.GetTasks()[0].GetBody()})
	var jobs []Submission
	for i := range 600 {
		jobs = append(jobs, small(fmt.Sprint("job", i), 10))
	}
	jobs = append(jobs, small("large", 200<<10), huge, Submission{Job: &dtaskv1.JobSpec{}})
	for i, got := range c.SubmitMany(t.Context(), jobs) {
		switch {
		case i == 7:
			var e *Error
			if !errors.As(got.Err, &e) || !errors.Is(e, ErrInvalid) || len(e.Faults) != 1 {
				t.Errorf("job 7: got %+v", got)
			}
		case i == 600 || i == 601:
			if got.Err != nil || got.ID != "large" {
				t.Errorf("a large one: got %+v", got)
			}
		case i == 602:
			if !errors.Is(got.Err, ErrInvalid) {
				t.Errorf("the empty one: got %+v", got)
			}
		case got.Err != nil || got.ID != fmt.Sprint(i) || got.Existed != (i == 8) || got.Key == "":
			t.Errorf("job %d: got %+v", i, got)
		}
	}
	if calls != 3 || seen["job8"] != 2 || seen["job9"] != 1 {
		t.Errorf("%d calls; job 8 was sent %d times and job 9 %d times", calls, seen["job8"], seen["job9"])
	}
}

func TestJobsOfACallWithTheVerySameHeaderSendItOnce(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}, Timeout: 30 * time.Second})
	var sent []string
	f := &fake{submitMany: func(jobs []*dtaskv1.SubmitRequest) []*dtaskv1.SubmitAnswer {
		var answers []*dtaskv1.SubmitAnswer
		for i, j := range jobs {
			sent = append(sent, j.GetHeader().GetName())
			a := &dtaskv1.SubmitAnswer{Stored: &dtaskv1.SubmitResponse{Id: "1"}}
			if len(sent) == 5 || i == 1 { // after that, the second alone, which needs it again
				a = &dtaskv1.SubmitAnswer{
					Code: int32(codes.ResourceExhausted), Message: "full",
					Detail: &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_BUSY, RetryAfterMs: 1},
				}
			}
			if j.GetIdempotencyKey() == "" || j.GetTotal() != 1 || len(tasksOf(j, 0)) != 1 {
				t.Errorf("incomplete: %v", j)
			}
			answers = append(answers, a)
		}
		return answers
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

func TestManyJobsThatNobodyTakesAreAllUnreachable(t *testing.T) {
	t.Parallel()
	_, c := setup(t, Config{Addrs: []string{"a:1"}, Timeout: 100 * time.Millisecond})
	for i, got := range c.SubmitMany(t.Context(), []Submission{small("a", 1), small("b", 1)}) {
		if !errors.Is(got.Err, ErrUnreachable) || got.Key == "" {
			t.Errorf("job %d: got %+v", i, got)
		}
	}
}

// A job that goes without its header loses nothing else, whatever a later version adds.
func TestAJobBehindOneWithItsHeaderIsAllThere(t *testing.T) {
	t.Parallel()
	whole := &dtaskv1.SubmitRequest{
		Header: &dtaskv1.JobHeader{Name: "n"}, IdempotencyKey: "k", GeneratedKey: true, Total: 2,
		Tasks: []*dtaskv1.TaskSpec{{Id: "t"}}, Columns: &dtaskv1.TaskColumns{IdSizes: []uint32{1}},
	}
	fields := whole.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if !whole.ProtoReflect().Has(fields.Get(i)) {
			t.Errorf("%s is not tried here", fields.Get(i).FullName())
		}
	}
	got := likeBefore(whole)
	if got.GetHeader() != nil {
		t.Error("it has its header still")
	}
	got.Header = whole.GetHeader()
	if !proto.Equal(got, whole) {
		t.Errorf("got %v, want %v", got, whole)
	}
}
