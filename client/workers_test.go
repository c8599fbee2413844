package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// fleet is the number of workers of the fake, numbered from 1.
const fleet = 2500

// ListWorkers returns pages that may be shorter than requested.
func (f *fake) ListWorkers(_ context.Context, r *dtaskv1.ListWorkersRequest) (*dtaskv1.ListWorkersResponse, error) {
	if r.GetName() != "" {
		return nil, refusal(codes.InvalidArgument, "no name", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_INVALID})
	}
	resp := new(dtaskv1.ListWorkersResponse)
	after, _ := strconv.Atoi(r.GetPageToken())
	for id := after + 1; id <= fleet; id++ {
		if n := len(resp.GetWorkers()); n == int(r.GetLimit()) || n == 700 {
			resp.NextPageToken = strconv.Itoa(id - 1)
			break
		}
		resp.Workers = append(resp.Workers, &dtaskv1.Worker{Id: strconv.Itoa(id)})
	}
	return resp, nil
}

func TestWorkersAreReadPageByPageUpToTheLimit(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	n.serve(t, "a:1", &fake{})
	for _, f := range []WorkerFilter{{}, {Limit: 1}, {Limit: 1800}, {Limit: fleet}, {After: "2499"}, {After: "90", Limit: 710}, {After: "2500"}} {
		var got, want []string
		for w, err := range c.Workers(t.Context(), f) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, w.GetId())
		}
		after, _ := strconv.Atoi(f.After)
		for id := after + 1; id <= fleet && (f.Limit == 0 || id <= after+f.Limit); id++ {
			want = append(want, fmt.Sprint(id))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: got %d workers, want %d", f, len(got), len(want))
		}
	}
	for _, err := range c.Workers(t.Context(), WorkerFilter{Name: "w1"}) {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("got %v, want invalid", err)
		}
	}
}
