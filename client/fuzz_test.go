package client

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// FuzzJudge checks that the client keeps its seed addresses, whatever
// errors and hints a coordinator returns.
func FuzzJudge(f *testing.F) {
	for _, d := range []*dtaskv1.ErrorDetail{
		{},
		{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER, LeaderAddress: "127.0.0.1:7461"},
		{Reason: dtaskv1.ErrorReason_ERROR_REASON_BUSY, RetryAfterMs: 100},
		{Reason: dtaskv1.ErrorReason_ERROR_REASON_REFUSED, Faults: []string{"a.yaml:1:1: x"}},
	} {
		for _, code := range []codes.Code{codes.Unavailable, codes.ResourceExhausted, codes.FailedPrecondition} {
			b, err := proto.Marshal(d)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint32(code), dialing+"dial tcp refused", b)
		}
	}
	f.Fuzz(func(t *testing.T, code uint32, message string, b []byte) {
		var d dtaskv1.ErrorDetail
		if code == 0 || proto.Unmarshal(b, &d) != nil {
			return
		}
		st, err := status.New(codes.Code(code), message).WithDetails(&d)
		if err != nil {
			return // not valid in a message
		}
		err = st.Err()
		j := classify(err)
		if j.local != nil || j.pause < 0 || j.pause > maxRetryDelay {
			t.Errorf("got judgement %+v of a status", j)
		}
		seeds := []string{"a:1", "b:2"}
		book := newAddressBook(seeds)
		for range maxHints + 2 {
			book.learn(j.leader)
			book.learn(j.leader + "x")
			book.failed(j.leader)
		}
		order := book.order()
		for _, seed := range seeds {
			if !slices.Contains(order, seed) {
				t.Errorf("after the hint %q: %s is missing in the order %q", j.leader, seed, order)
			}
		}
		if len(order) > len(seeds)+maxHints || slices.Contains(order, "") {
			t.Errorf("after the hint %q: got order %q", j.leader, order)
		}
	})
}
