package client

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestRetryWithAnUnknownOutcomeIsRepeated(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1", "b:1"}})
	n.serve(t, "a:1", &fake{retry: func(*dtaskv1.RetryRequest) (*dtaskv1.RetryResponse, error) {
		return nil, refusal(codes.Unavailable, "leadership was lost", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN})
	}})
	n.serve(t, "b:1", &fake{retry: func(r *dtaskv1.RetryRequest) (*dtaskv1.RetryResponse, error) {
		if !slices.Equal(r.GetTasks(), []string{"x", "y"}) {
			return nil, refusal(codes.NotFound, "no such task", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND})
		}
		return &dtaskv1.RetryResponse{Job: &dtaskv1.Job{Id: r.GetJob(), State: dtaskv1.JobState_JOB_STATE_RUNNING}}, nil
	}})
	job, err := c.Retry(t.Context(), "42", []string{"x", "y"})
	if err != nil || job.GetId() != "42" || Ended(job.GetState()) {
		t.Errorf("got %v, %v; want job 42 running", job, err)
	}
	if _, err = c.Retry(t.Context(), "42", nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want not found", err)
	}
}

func TestDeadLettersAreReadPageByPageUpToTheLimit(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	pages := map[string]*dtaskv1.ListDeadLettersResponse{
		"":  {DeadLetters: []*dtaskv1.DeadLetter{{Task: "a"}, {Task: "b"}}, NextPageToken: "x"},
		"x": {NextPageToken: "y"}, // a page without results
		"y": {DeadLetters: []*dtaskv1.DeadLetter{{Task: "c"}, {Task: "d"}}},
	}
	n.serve(t, "a:1", &fake{dead: func(r *dtaskv1.ListDeadLettersRequest) (*dtaskv1.ListDeadLettersResponse, error) {
		if r.GetJob() != "42" || r.GetType() != "prime" || !r.GetWithHistory() || r.GetConsistency() != dtaskv1.Consistency_CONSISTENCY_STALE {
			return nil, refusal(codes.InvalidArgument, "not what was asked for", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_INVALID})
		}
		return pages[r.GetPageToken()], nil
	}})
	for limit, want := range map[int][]string{0: {"a", "b", "c", "d"}, 3: {"a", "b", "c"}} {
		var got []string
		for l, err := range c.DeadLetters(t.Context(), DeadLetterFilter{Job: "42", Type: "prime", History: true, Stale: true, Limit: limit}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, l.GetTask())
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: got %v, want %v", limit, got, want)
		}
	}
	for _, err := range c.DeadLetters(t.Context(), DeadLetterFilter{}) {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("got %v, want invalid", err)
		}
	}
}

func TestPurgeReturnsTheNumberOfDeadLetters(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	n.serve(t, "a:1", &fake{purge: func(r *dtaskv1.PurgeDeadLettersRequest) (*dtaskv1.PurgeDeadLettersResponse, error) {
		if r.GetJob() != "42" {
			return nil, refusal(codes.FailedPrecondition, "no dead letter", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_CONFLICT})
		}
		return &dtaskv1.PurgeDeadLettersResponse{Purged: uint32(len(r.GetTasks()))}, nil
	}})
	if got, err := c.PurgeDeadLetters(t.Context(), "42", []string{"x", "y"}); err != nil || got != 2 {
		t.Errorf("got %d, %v; want 2", got, err)
	}
	if got, err := c.PurgeDeadLetters(t.Context(), "43", nil); !errors.Is(err, ErrConflict) || got != 0 {
		t.Errorf("got %d, %v; want a conflict", got, err)
	}
}
