package client

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Errors of coordinators that accept no submission now.
var (
	errFull     = refusal(codes.ResourceExhausted, "full", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_BUSY, RetryAfterMs: 700})
	errNotReady = refusal(codes.Unavailable, "not ready yet", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_BUSY, RetryAfterMs: 100})
	errUnknown  = refusal(codes.Unavailable, "lost", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN})
)

// submitUntilTimeout submits to an unreachable address and to a coordinator
// that returns the given errors, the last one repeatedly; nil means no
// response.
func submitUntilTimeout(t *testing.T, answers ...error) *Error {
	t.Helper()
	n, c := setup(t, Config{Addrs: []string{"nobody:1", "a:1"}, Timeout: 5 * time.Second})
	f := &fake{}
	f.submit = func(string, *dtaskv1.JobHeader, []*dtaskv1.TaskSpec) (*dtaskv1.StoredJob, error) {
		answer := answers[min(int(f.calls.Load()), len(answers))-1]
		if answer == nil {
			<-f.hang
		}
		return nil, answer
	}
	n.serve(t, "a:1", f)
	_, err := c.Submit(t.Context(), oneTask(), SubmitOptions{Key: "k"})
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Key != "k" {
		t.Fatalf("got %#v, want an error with the key", err)
	}
	return e
}

func TestOverloadUntilTheTimeoutIsErrBusy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []error
		kind    error
		unknown bool
	}{
		"full":                             {[]error{errFull}, ErrBusy, false},
		"not ready, then full":             {[]error{errNotReady, errFull}, ErrBusy, false},
		"a leader that is not ready":       {[]error{errNotReady}, ErrUnreachable, false},
		"full, then not ready":             {[]error{errFull, errNotReady}, ErrUnreachable, false},
		"once unknown, then full":          {[]error{errUnknown, errFull}, ErrUnreachable, true},
		"full, then unknown":               {[]error{errFull, errUnknown}, ErrUnreachable, true},
		"disconnected in the only try":     {[]error{nil}, ErrUnreachable, true},
		"full, then disconnected in a try": {[]error{errFull, nil}, ErrUnreachable, true},
		"only redirects":                   {[]error{notLeader("nobody:2")}, ErrUnreachable, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := submitUntilTimeout(t, c.answers...)
				if !errors.Is(e, c.kind) || errors.Is(e, ErrRefused) != (c.kind == ErrBusy) || e.Unknown != c.unknown { //nolint:errorlint // of the table above
					t.Errorf("got %v, unknown %v; want %v, unknown %v", e, e.Unknown, c.kind, c.unknown)
				}
				if busy := strings.Contains(e.Message, "cluster busy for 5s: a:1: full"); busy != (c.kind == ErrBusy) { //nolint:errorlint // of the table above
					t.Errorf("got message %q", e.Message)
				}
			})
		})
	}
}

// When the suspicion of an unreachable address ends, it may be tried before the others, and
// the timeout may expire before the next one.
func TestAnUnreachableAddressKeepsABusyClusterBusy(t *testing.T) {
	t.Parallel()
	unreachable := &unsentError{st: status.New(codes.Unavailable, "connection refused")}
	type failure struct {
		addr string
		err  error
	}
	for name, c := range map[string]struct {
		failures []failure
		want     error
	}{
		"another one is unreachable":       {[]failure{{"a:1", errFull}, {"nobody:1", unreachable}}, ErrBusy},
		"it became unreachable itself":     {[]failure{{"a:1", errFull}, {"a:1", unreachable}}, ErrUnreachable},
		"another one answered":             {[]failure{{"a:1", errFull}, {"b:1", errNotReady}, {"nobody:1", unreachable}}, ErrUnreachable},
		"only one answered":                {[]failure{{"nobody:1", unreachable}, {"a:1", errFull}}, ErrBusy},
		"two were full, one of them ended": {[]failure{{"a:1", errFull}, {"b:1", errFull}, {"a:1", unreachable}}, ErrBusy},
	} {
		_, w := newRetryLoop(t.Context(), time.Hour, operation{name: "submitting"})
		for _, f := range c.failures {
			w.note(f.addr, classify(f.err))
		}
		if err := w.timedOut(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		w.end()
	}
}

// A caller that waits learns why, once for each call.
func TestACallThatIsNotTakenReportsWhyItWaits(t *testing.T) {
	t.Parallel()
	rare := refusal(codes.ResourceExhausted, "queue web exceeds 1/m", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_BUSY, RetryAfterMs: 40_000})
	for name, c := range map[string]struct {
		answer  error
		timeout time.Duration
		after   time.Duration // at most
		want    []string
		failed  string
	}{
		"a rate": {rare, 10 * time.Second, time.Second, []string{"submitting the job: cluster busy, retrying for up to 10s: a:1: queue web exceeds 1/m"}, "cluster busy for 10s"},
		"no leader": {
			notLeader(""), 10 * time.Second, waitingDelay,
			[]string{"submitting the job: no coordinator takes the call, retrying for up to 10s: a:1: not the leader"},
			"no coordinator took the call within 10s: a:1: not the leader",
		},
		"a short election": {notLeader(""), time.Second, 0, nil, "no coordinator took the call within 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var got []string
				began, reported := time.Now(), time.Duration(0)
				n, client := setup(t, Config{Addrs: []string{"a:1"}, Timeout: c.timeout, Waiting: func(text string) {
					got, reported = append(got, text), time.Since(began)
				}})
				n.serve(t, "a:1", &fake{submit: func(string, *dtaskv1.JobHeader, []*dtaskv1.TaskSpec) (*dtaskv1.StoredJob, error) {
					return nil, c.answer
				}})
				_, err := client.Submit(t.Context(), oneTask(), SubmitOptions{Key: "k"})
				if !slices.Equal(got, c.want) || reported > c.after {
					t.Errorf("got %q after %v, want %q", got, reported, c.want)
				}
				if e, ok := errors.AsType[*Error](err); !ok || !strings.Contains(e.Message, c.failed) || e.Answered != (e.Kind == ErrUnreachable) { //nolint:errorlint // the kind itself
					t.Errorf("got %v, want %q", err, c.failed)
				}
			})
		})
	}
}

func TestWithoutAnAnswerNoCoordinatorResponded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c := setup(t, Config{Addrs: []string{"nobody:1"}, Timeout: time.Second})
		_, err := c.Job(t.Context(), "1", ReadOptions{})
		if e, ok := errors.AsType[*Error](err); !ok || e.Answered || !strings.Contains(e.Message, "no coordinator responded within 1s") {
			t.Errorf("got %v", err)
		}
	})
}
