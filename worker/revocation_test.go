package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// unknownKey is what a coordinator answers that knows no identity with the worker's key.
func unknownKey() error {
	return refused(codes.Unauthenticated, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_REFUSED})
}

func wantRevoked(t *testing.T, err error, dir string) {
	t.Helper()
	e, ok := errors.AsType[*RevokedError](err)
	if !ok {
		t.Fatalf("got %v, want a *RevokedError", err)
	}
	want := fmt.Sprintf("the identity of worker w1 was revoked, or is unknown to cluster %s: to let it join again, remove %s and %s in %s, and start it with a new join string",
		cluster, tlsconf.WorkerKeyFile, membershipFile, dir)
	if !strings.Contains(e.Error(), want) {
		t.Errorf("got %v, want %s", e, want)
	}
}

func TestARevokedWorkerStopsItsAttemptsAndEnds(t *testing.T) {
	t.Parallel()
	n, dir := newRealNetwork(t), t.TempDir()
	defer n.stopAll()
	j := n.listenTLS(t, "n1:1")
	started, stopped := make(chan struct{}), make(chan error, 1)
	b := member(t, n, Config{JoinString: joinString(t, j.ca, cluster), Name: "w1", WorkDir: dir}, func(w *Worker) {
		w.Handle("wait", func(ctx context.Context, _ *Task) ([]byte, error) {
			close(started)
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			return nil, ctx.Err()
		})
	})
	l := (<-j.sessions).welcome(t, 1)
	l.assign(t, work{typ: "wait"})
	go l.serveTillEnd(t)
	<-started
	l.end <- unknownKey()
	wantRevoked(t, <-b.done, dir)
	select {
	case cause := <-stopped:
		if !errors.Is(cause, ErrSuperseded) {
			t.Errorf("the attempt was stopped because of %v", cause)
		}
	default:
		t.Error("the worker ended before its attempt")
	}
}

// A worker that was revoked while it had no session, or was not running.
func TestAWorkerThatIsRefusedForAWhileEnds(t *testing.T) {
	t.Parallel()
	n, dir := newRealNetwork(t), t.TempDir()
	defer n.stopAll()
	j := n.listenTLS(t, "n1:1")
	b := member(t, n, Config{JoinString: joinString(t, j.ca, cluster), Name: "w1", WorkDir: dir})
	for refusals := 0; ; refusals++ {
		select {
		case l := <-j.sessions:
			l.end <- unknownKey()
			continue
		case err := <-b.done:
			wantRevoked(t, err, dir)
		}
		if refusals < 2 {
			t.Errorf("the worker ended after %d refusals, of a leader that may be deposed", refusals)
		}
		return
	}
}

func TestOnlyCoordinatorsRevoke(t *testing.T) {
	t.Parallel()
	start := time.Now()
	for name, err := range map[string]error{
		"transport": status.Error(codes.Unavailable, "connection reset"),
		"proxy":     status.Error(codes.Unauthenticated, "401"),
		"follower":  refused(codes.FailedPrecondition, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER}),
		"name":      refused(codes.PermissionDenied, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_REFUSED}),
		"silence":   errLivenessTimeout,
		"end":       io.EOF,
	} {
		var r revocation
		for second := range 10 {
			for _, welcomed := range []bool{true, false} {
				if r.noted(welcomed, err, start.Add(time.Duration(second)*time.Second)) {
					t.Errorf("%s ends the worker", name)
				}
			}
		}
	}
	var r revocation
	for _, test := range []struct {
		welcomed bool
		err      error
		at       time.Duration
		want     bool
	}{
		{false, unknownKey(), 0, false}, // by a leader that was deposed
		{true, io.EOF, 100 * time.Millisecond, false},
		{false, unknownKey(), revocationPeriod, false},
		{false, io.EOF, revocationPeriod, false},
		{false, unknownKey(), 2 * revocationPeriod, true},
	} {
		if got := r.noted(test.welcomed, test.err, start.Add(test.at)); got != test.want {
			t.Errorf("%v, %v after %v: got %v", test.welcomed, test.err, test.at, got)
		}
	}
}
