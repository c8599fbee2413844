package client

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// updating is a coordinator that accepts updates.
type updating struct {
	fake

	mu     sync.Mutex
	got    []*dtaskv1.UpdateRequest
	answer func(n int) (*dtaskv1.UpdateResponse, error) // to call n, from 1
}

func (u *updating) Update(_ context.Context, r *dtaskv1.UpdateRequest) (*dtaskv1.UpdateResponse, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.got = append(u.got, r)
	return u.answer(len(u.got))
}

func TestUpdateWithAnUnknownOutcomeIsRepeatedWithTheSameKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "mine"} {
		n, c := setup(t, Config{Addrs: []string{"a:1"}})
		u := &updating{answer: func(n int) (*dtaskv1.UpdateResponse, error) {
			if n == 1 {
				return nil, errUnknown
			}
			return &dtaskv1.UpdateResponse{Job: &dtaskv1.Job{Id: "42"}, Version: 3, Existed: true}, nil
		}}
		n.serveAs(t, "a:1", &u.fake, u)
		asked := &dtaskv1.UpdateRequest{Job: "42", Task: "a", MaxRetries: proto.Uint32(1), IdempotencyKey: key}
		before := proto.CloneOf(asked)
		got, err := c.Update(t.Context(), asked)
		if err != nil || got.Version != 3 || !got.Existed || got.Job.GetId() != "42" {
			t.Fatalf("got %+v, %v", got, err)
		}
		if !proto.Equal(asked, before) {
			t.Errorf("got the caller's request changed to %v", asked)
		}
		if len(u.got) != 2 || !proto.Equal(u.got[0], u.got[1]) {
			t.Fatalf("got requests %v, want the same twice", u.got)
		}
		if r := u.got[0]; r.GetGeneratedKey() != (key == "") || key != "" && r.GetIdempotencyKey() != key || key == "" && len(r.GetIdempotencyKey()) != 32 {
			t.Errorf("with the key %q: got request %v", key, r)
		}
	}
}

func TestUpdateOfAStartedTaskIsAConflict(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	u := &updating{answer: func(int) (*dtaskv1.UpdateResponse, error) {
		return nil, refusal(codes.FailedPrecondition, "task a has started", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_CONFLICT})
	}}
	n.serveAs(t, "a:1", &u.fake, u)
	for task, name := range map[string]string{"": "updating job 42: ", "a": "updating task 42/a: "} {
		_, err := c.Update(t.Context(), &dtaskv1.UpdateRequest{Job: "42", Task: task, TimeoutMs: 1})
		if !errors.Is(err, ErrConflict) || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("got %v, want a conflict of %q", err, name)
		}
	}
	_, err := c.Update(t.Context(), &dtaskv1.UpdateRequest{Job: "42", IdempotencyKey: strings.Repeat("k", 129)})
	if !errors.Is(err, ErrInvalid) || u.calls.Load() != 2 {
		t.Errorf("oversized key: got %v after %d calls, want invalid after 2", err, u.calls.Load())
	}
}
