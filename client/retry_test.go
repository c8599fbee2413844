package client

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A connection breaks after the commit: the client doesn't know the outcome and
// repeats the call elsewhere.
func TestARetryOrPurgeWithAnUnknownOutcomeIsRepeatedWithTheSameKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "mine"} {
		n, c := setup(t, Config{Addrs: []string{"a:1", "b:1"}})
		var retries []*dtaskv1.RetryRequest // the calls follow each other
		broken := status.Error(codes.Unavailable, "connection reset")
		n.serve(t, "a:1", &fake{
			retry: func(r *dtaskv1.RetryRequest) (*dtaskv1.RetryResponse, error) {
				retries = append(retries, r)
				return nil, broken
			},
		})
		n.serve(t, "b:1", &fake{
			retry: func(r *dtaskv1.RetryRequest) (*dtaskv1.RetryResponse, error) {
				retries = append(retries, r)
				return &dtaskv1.RetryResponse{Job: &dtaskv1.Job{Id: r.GetJob()}, Version: 3, Existed: true}, nil
			},
		})
		retried, err := c.Retry(t.Context(), &dtaskv1.RetryRequest{Job: "42", Tasks: []string{"x"}, IfVersion: 2, IdempotencyKey: key})
		if err != nil || retried.Job.GetId() != "42" || retried.Version != 3 || !retried.Existed {
			t.Errorf("retrying: %+v, %v", retried, err)
		}
		if len(retries) != 2 || !proto.Equal(retries[0], retries[1]) {
			t.Fatalf("sent %v, want the same twice", retries)
		}
		if r := retries[0]; r.GetGeneratedKey() != (key == "") || key != "" && r.GetIdempotencyKey() != key || key == "" && len(r.GetIdempotencyKey()) != 32 || r.GetIfVersion() != 2 {
			t.Errorf("with the key %q sent %v", key, r)
		}
		var purges []*dtaskv1.PurgeDeadLettersRequest
		n, c = setup(t, Config{Addrs: []string{"a:1", "b:1"}})
		n.serve(t, "a:1", &fake{purge: func(r *dtaskv1.PurgeDeadLettersRequest) (*dtaskv1.PurgeDeadLettersResponse, error) {
			purges = append(purges, r)
			return nil, broken
		}})
		n.serve(t, "b:1", &fake{purge: func(r *dtaskv1.PurgeDeadLettersRequest) (*dtaskv1.PurgeDeadLettersResponse, error) {
			purges = append(purges, r)
			return &dtaskv1.PurgeDeadLettersResponse{Purged: 2, Version: 4, Existed: true}, nil
		}})
		purged, err := c.PurgeDeadLetters(t.Context(), &dtaskv1.PurgeDeadLettersRequest{Job: "42", IdempotencyKey: key})
		if err != nil || purged != (Purged{Tasks: 2, Version: 4, Existed: true}) {
			t.Errorf("purging: %+v, %v", purged, err)
		}
		if len(purges) != 2 || !proto.Equal(purges[0], purges[1]) || purges[0].GetGeneratedKey() != (key == "") {
			t.Errorf("sent %v, want the same twice", purges)
		}
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
	if got, err := c.PurgeDeadLetters(t.Context(), &dtaskv1.PurgeDeadLettersRequest{Job: "42", Tasks: []string{"x", "y"}}); err != nil || got.Tasks != 2 {
		t.Errorf("got %+v, %v; want 2", got, err)
	}
	if got, err := c.PurgeDeadLetters(t.Context(), &dtaskv1.PurgeDeadLettersRequest{Job: "43"}); !errors.Is(err, ErrConflict) || got.Tasks != 0 {
		t.Errorf("got %+v, %v; want a conflict", got, err)
	}
}
