package client

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Another coordinator would refuse the same caller, now and later.
func TestACallThatIsDeniedIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.Unauthenticated, codes.PermissionDenied} {
		denied := refusal(code, "the token expired", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_REFUSED})
		n := &network{listeners: make(map[string]*bufconn.Listener)}
		fakes := []*fake{
			{denies: denied, getJob: func(string) (*dtaskv1.Job, error) { return nil, denied }},
			{denies: denied, getJob: func(string) (*dtaskv1.Job, error) { return nil, denied }},
		}
		n.serve(t, "n1:1", fakes[0])
		n.serve(t, "n2:1", fakes[1])
		c, err := New(Config{Addrs: []string{"n1:1", "n2:1"}, Dial: n.dial})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Job(t.Context(), "1", ReadOptions{})
		if calls := fakes[0].calls.Load() + fakes[1].calls.Load(); !errors.Is(err, ErrRefused) || calls != 1 {
			t.Errorf("%v: got %v after %d calls, want a refusal after one", code, err, calls)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A follower that doesn't know a new token yet names the leader, and another coordinator may
// be silent. Neither hides that the leader refused.
func TestARefusalOfOneCoordinatorOutranksTheSilenceOfOthers(t *testing.T) {
	t.Parallel()
	n := &network{listeners: make(map[string]*bufconn.Listener)}
	denied := refusal(codes.PermissionDenied, "ann may not call this", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_REFUSED})
	n.serve(t, "n1:1", &fake{denies: notLeader("n2:1")})
	n.serve(t, "n2:1", &fake{denies: denied})
	c, err := New(Config{Addrs: []string{"n1:1", "n2:1", "n3:1"}, Dial: n.dial})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Identify(t.Context())
	if want := "identifying a coordinator: n2:1: ann may not call this"; !errors.Is(err, ErrRefused) || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
