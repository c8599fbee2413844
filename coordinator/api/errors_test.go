package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

var errForeign = errors.New("an error of another package")

func TestEveryErrorHasItsCodeAndReason(t *testing.T) {
	t.Parallel()
	classified := func(k Kind) func(error) *Error { return func(error) *Error { return &Error{Kind: k} } }
	unclassified := func(error) *Error { return nil }
	unknown := fmt.Errorf("%w: %w", sequencer.ErrOutcomeUnknown, context.Canceled)
	for _, c := range []struct {
		name     string
		err      error
		classify func(error) *Error
		code     codes.Code
		reason   dtaskv1.ErrorReason
	}{
		{"term ended", sequencer.ErrTermEnded, unclassified, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER},
		{"busy", &sequencer.BusyError{What: "full"}, unclassified, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY},
		{"unknown, whatever it wraps", unknown, classified(KindNotLeader), codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN},
		{"name in use", &sequencer.NameInUseError{Name: "w"}, unclassified, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED},
		{"job not found", &sequencer.RejectedError{Reason: fsm.JobNotFound}, unclassified, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND},
		{"ended", &sequencer.RejectedError{Reason: fsm.AlreadyEnded}, unclassified, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT},
		{"key conflict", &sequencer.RejectedError{Reason: fsm.KeyConflict}, unclassified, codes.AlreadyExists, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT},
		{"a rejection that no caller can cause", &sequencer.RejectedError{Reason: fsm.Malformed}, unclassified, codes.Internal, dtaskv1.ErrorReason_ERROR_REASON_UNSPECIFIED},
		{"faults", spec.Faults{{Where: "job", What: "is bad"}}, unclassified, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID},
		{"own", notFound("nothing"), unclassified, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND},
		{"wrapped own", fmt.Errorf("doing: %w", refused("no")), unclassified, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED},
		{"cancelled", context.Canceled, unclassified, codes.Canceled, dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN},
		{"deadline", context.DeadlineExceeded, unclassified, codes.DeadlineExceeded, dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN},
		{"classified", errForeign, classified(KindNotFound), codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND},
		{"classified as internal", errForeign, classified(KindInternal), codes.Internal, dtaskv1.ErrorReason_ERROR_REASON_UNSPECIFIED},
		{"anything else", errForeign, unclassified, codes.Internal, dtaskv1.ErrorReason_ERROR_REASON_UNSPECIFIED},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			raft := &fakeRaft{id: "n2", address: "n2:1"}
			s := &Server{cfg: Config{ServerID: "n1", Classify: c.classify, Raft: func() Raft { return raft }, Logger: slog.New(slog.DiscardHandler)}}
			wantError(t, s.status(t.Context(), "method", c.err), c.code, c.reason)
		})
	}
}

func TestARefusedWorkerLearnsWhatHasItsName(t *testing.T) {
	t.Parallel()
	s := &Server{cfg: Config{Classify: func(error) *Error { return nil }}}
	inUse := &sequencer.NameInUseError{Name: "w", Host: "h", Address: "10.0.0.3:4711", Silent: 1500 * time.Millisecond}
	d := wantError(t, s.status(t.Context(), "Sessions", inUse), codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	if want := (&dtaskv1.NameHolder{Host: "h", Address: "10.0.0.3:4711", SilentMs: 1500}); !proto.Equal(d.GetNameHolder(), want) {
		t.Errorf("got %v, want %v", d.GetNameHolder(), want)
	}
}

func TestEveryKindIsInTheTable(t *testing.T) {
	t.Parallel()
	for k := KindInternal; k <= KindDenied; k++ {
		if _, ok := errorTable[k]; !ok {
			t.Errorf("kind %d: missing in the table", k)
		}
	}
	if len(errorTable) != int(KindDenied) {
		t.Errorf("got %d rows, want %d", len(errorTable), KindDenied)
	}
}

func TestEveryReasonOfTheStateMachineHasAMeaning(t *testing.T) {
	t.Parallel()
	for r := fsm.Accepted; !strings.HasPrefix(r.String(), "reason("); r++ {
		got := ofRejection(r)
		if (got == nil) != (r.Class() == fsm.ClassInternal) || got != nil && (got.Kind == KindInternal || got.Message != r.String()) {
			t.Errorf("reason %v of class %d: got %v", r, r.Class(), got)
		}
	}
	for r, want := range map[fsm.Reason]Kind{
		fsm.TaskNotFound: KindNotFound, fsm.AlreadyEnded: KindEnded, fsm.KeyConflict: KindConflict, fsm.BudgetExceeded: KindRefused,
	} {
		if got := ofRejection(r); got == nil || got.Kind != want {
			t.Errorf("reason %v: got %v, want kind %d", r, got, want)
		}
	}
}

func TestAStatusStaysAsItIs(t *testing.T) {
	t.Parallel()
	s := &Server{}
	want := status.Error(codes.Aborted, "as it is")
	if got := s.status(t.Context(), "method", want); got != want { //nolint:errorlint // this very value
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAFollowerReturnsALeaderHint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, id, address string
		term              uint64 // 1 has started
		noRaft            bool
		code              codes.Code
		reason            dtaskv1.ErrorReason
	}{
		{"known", "n2", "n2:7460", 2, false, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER},
		{"unknown", "", "", 2, false, codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER},
		{"itself, not ready", "n1", "n1:7460", 2, false, codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_BUSY},
		{"itself, which transfers leadership", "n1", "n1:7460", 1, false, codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER},
		{"no raft", "", "", 2, true, codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			r.leading(false)
			r.noRaft = c.noRaft
			r.raft.set(func(f *fakeRaft) { f.id, f.address, f.state, f.term = c.id, c.address, "follower", c.term })
			_, err := r.jobs.GetJob(t.Context(), &dtaskv1.GetJobRequest{Id: "1"})
			d := wantError(t, err, c.code, c.reason)
			if c.reason == dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER && c.id != "n1" && (d.GetLeaderId() != c.id || d.GetLeaderAddress() != c.address) {
				t.Errorf("got hint %v", d)
			}
			if c.id == "n1" && d.GetLeaderAddress() != "" {
				t.Errorf("the replica redirects to itself: got %v", d)
			}
			if c.reason == dtaskv1.ErrorReason_ERROR_REASON_BUSY && d.GetRetryAfterMs() <= 0 {
				t.Errorf("missing retry delay: got %v", d)
			}
			for name, call := range map[string]func() error{
				"submit": func() error { _, err := r.send(t.Context(), request("k", header("x"), task("a"))); return err },
				"cancel": func() error {
					_, err := r.jobs.Cancel(t.Context(), &dtaskv1.CancelRequest{Job: "1"})
					return err
				},
				"list": func() error { _, err := r.jobs.ListJobs(t.Context(), &dtaskv1.ListJobsRequest{}); return err },
				"workers": func() error {
					_, err := r.admin.ListWorkers(t.Context(), &dtaskv1.ListWorkersRequest{})
					return err
				},
				"watch": func() error {
					stream, err := r.jobs.WatchJob(t.Context(), &dtaskv1.WatchJobRequest{Id: "1"})
					if err != nil {
						return err
					}
					_, err = stream.Recv()
					return err
				},
				"logs": func() error {
					stream, err := r.jobs.Logs(t.Context(), &dtaskv1.LogsRequest{Job: "1", Task: "a"})
					if err != nil {
						return err
					}
					_, err = stream.Recv()
					return err
				},
			} {
				if err := call(); status.Code(err) != c.code {
					t.Errorf("%s: got %v, want code %v", name, err, c.code)
				}
			}
		})
	}
}

func TestBusyHasARetryDelay(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.leader.fail = &sequencer.BusyError{What: "full", RetryAfter: 3 * time.Second}
	_, err := r.send(t.Context(), request("k", header("x"), task("a")))
	if d := wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY); d.GetRetryAfterMs() != 3000 {
		t.Errorf("got retry_after_ms %d, want 3000", d.GetRetryAfterMs())
	}
}

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestAPanicBecomesAnInternalErrorWithAnIDThatIsLogged(t *testing.T) {
	t.Parallel()
	log := new(lockedBuffer)
	r := setup(t, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
		c.Totals = func() sequencer.Stats { panic("internal secret") }
	})
	_, err := r.admin.Stats(t.Context(), &dtaskv1.StatsRequest{})
	wantError(t, err, codes.Internal, dtaskv1.ErrorReason_ERROR_REASON_UNSPECIFIED)
	message := status.Convert(err).Message()
	if strings.Contains(message, "secret") {
		t.Errorf("the message %q leaks internals", message)
	}
	_, rest, _ := strings.Cut(log.String(), "error_id=")
	id, _, _ := strings.Cut(rest, " ")
	if id == "" || !strings.Contains(message, id) || !strings.Contains(log.String(), "internal secret") {
		t.Errorf("message %q and log %q have no common id", message, log)
	}
	if _, err := r.admin.ListWorkers(t.Context(), &dtaskv1.ListWorkersRequest{}); err != nil {
		t.Errorf("call after a panic: got %v", err)
	}
}

func TestFaultsOfOneResponseAreBounded(t *testing.T) {
	t.Parallel()
	lines := make([]string, 100)
	for i := range lines {
		lines[i] = strings.Repeat("x", 1000)
	}
	got := boundLines(lines)
	if len(got) != 66 || got[65] != "… and 35 more" {
		t.Errorf("got %d lines, the last %q", len(got), got[len(got)-1])
	}
}
