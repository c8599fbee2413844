package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// Kind is what an error means to a caller.
type Kind uint8

// The kinds of errors. Zero is unset.
const (
	// KindInternal: a bug; the call may have had its effect. The caller gets an id
	// that is in the log.
	KindInternal Kind = iota + 1
	// KindNotLeader: nothing happened; another replica leads or will.
	KindNotLeader
	// KindBusy: nothing happened; something is full or not ready yet.
	KindBusy
	// KindUnknown: the call may or may not have had its effect.
	KindUnknown
	// KindCancelled, KindDeadline: the caller left or its deadline has passed. The
	// outcome is unknown.
	KindCancelled
	KindDeadline
	// KindConflict: the idempotency key belongs to another request.
	KindConflict
	// KindEnded: the job, task or worker is not in a state that allows the call.
	KindEnded
	// KindNotFound: unknown, or expired.
	KindNotFound
	// KindInvalid: the request breaks a rule.
	KindInvalid
	// KindRefused: the request is valid and exceeds a limit or a permission.
	KindRefused
	// KindCompacted: the requested changes are no longer available.
	KindCompacted
	// KindForeign: nothing happened; the call names another cluster.
	KindForeign
	// KindUnauthenticated: nothing happened; the caller has no valid credentials.
	KindUnauthenticated
	// KindDenied: nothing happened; the caller's role or namespaces don't allow the call.
	KindDenied
)

// errorRow is how callers see a kind.
type errorRow struct {
	code   codes.Code
	reason dtaskv1.ErrorReason
}

// errorTable is the one place where kinds become codes and reasons. KindNotLeader is
// refined by what this replica knows about the leader, in Server.status.
var errorTable = map[Kind]errorRow{
	KindInternal:  {codes.Internal, dtaskv1.ErrorReason_ERROR_REASON_UNSPECIFIED},
	KindNotLeader: {codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER},
	KindBusy:      {codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY},
	KindUnknown:   {codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN},
	KindCancelled: {codes.Canceled, dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN},
	KindDeadline:  {codes.DeadlineExceeded, dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN},
	KindConflict:  {codes.AlreadyExists, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT},
	KindEnded:     {codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT},
	KindNotFound:  {codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND},
	KindInvalid:   {codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID},
	KindRefused:   {codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED},
	KindCompacted: {codes.OutOfRange, dtaskv1.ErrorReason_ERROR_REASON_COMPACTED},
	KindForeign:   {codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_FOREIGN_CLUSTER},

	KindUnauthenticated: {codes.Unauthenticated, dtaskv1.ErrorReason_ERROR_REASON_REFUSED},
	KindDenied:          {codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED},
}

// Error is an error with its kind.
type Error struct {
	Kind       Kind
	Message    string              // for the user
	Faults     []string            // with KindInvalid: one line each
	RetryAfter time.Duration       // with KindBusy; 0 = retryAfter
	ClusterID  string              // with KindRefused or KindForeign: of this cluster, if the caller belongs to another one
	Holder     *dtaskv1.NameHolder // with KindRefused: what uses the name of the worker
	limit      busyCause           // with KindBusy
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// errNotLeader is returned when this replica does not lead.
var errNotLeader = &Error{Kind: KindNotLeader, Message: "this replica is not the leader"}

// retryAfter is the default pause of busy callers: about the time of a change of
// leaders.
const retryAfter = 100 * time.Millisecond

func notFound(format string, args ...any) error {
	return &Error{Kind: KindNotFound, Message: fmt.Sprintf(format, args...)}
}

// notFoundNear is for an unknown name, with the one that was probably meant, if any. How to
// list the names differs by client: dtaskctl adds its command as a hint.
func notFoundNear(what, name, near string) error {
	if near == "" {
		return notFound("%s %s not found", what, quote(name))
	}
	return notFound("%s %s not found; %s", what, quote(name), didYouMean(near))
}

// didYouMean suggests a name; empty without one.
func didYouMean(near string) string {
	if near == "" {
		return ""
	}
	return "did you mean " + quote(near) + "?"
}

// conflict is for a job, task or worker whose state does not allow the call.
func conflict(format string, args ...any) error {
	return &Error{Kind: KindEnded, Message: fmt.Sprintf(format, args...)}
}

// denied is for a namespace that the caller does not have.
func denied(format string, args ...any) error {
	return &Error{Kind: KindDenied, Message: fmt.Sprintf(format, args...)}
}

func refused(format string, args ...any) error {
	return &Error{Kind: KindRefused, Message: fmt.Sprintf(format, args...)}
}

// invalid is for one fault of a request: what is wrong and what to do.
func invalid(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	return &Error{Kind: KindInvalid, Message: "invalid request", Faults: []string{line}}
}

// meaning finds what an error means to the caller; nil if it is internal. The unknown
// outcome comes first, since it may wrap a cause that alone would be definite.
func meaning(err error, classify func(error) *Error) *Error {
	var (
		own      *Error
		faults   spec.Faults
		rejected *sequencer.RejectedError
		busy     *sequencer.BusyError
		inUse    *sequencer.NameInUseError
		refusal  *auth.DeniedError
	)
	switch {
	case errors.Is(err, sequencer.ErrOutcomeUnknown):
		return &Error{Kind: KindUnknown, Message: "leadership lost: outcome unknown"}
	case errors.As(err, &own):
		return own
	case errors.As(err, &faults):
		return &Error{Kind: KindInvalid, Message: "invalid job", Faults: boundLines(faults.Lines())}
	case errors.As(err, &rejected):
		return ofRejection(rejected.Reason)
	case errors.As(err, &busy):
		return &Error{Kind: KindBusy, Message: busy.What, RetryAfter: busy.RetryAfter}
	case errors.As(err, &inUse):
		return nameInUse(inUse)
	case errors.As(err, &refusal):
		return ofDenial(refusal)
	case errors.Is(err, sequencer.ErrTermEnded):
		return errNotLeader
	}
	switch e := classify(err); {
	case e != nil && e.Kind == KindInternal:
		return nil
	case e != nil:
		return e
	case errors.Is(err, context.Canceled):
		return &Error{Kind: KindCancelled, Message: "call cancelled"}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Kind: KindDeadline, Message: "deadline exceeded"}
	}
	return nil
}

// ofDenial distinguishes callers that must log in from those that may not call a method.
func ofDenial(e *auth.DeniedError) *Error {
	kind := KindDenied
	if e.Principal == nil {
		kind = KindUnauthenticated
	}
	return &Error{Kind: kind, Message: e.Error()}
}

// nameInUse tells a worker which process uses its name.
func nameInUse(e *sequencer.NameInUseError) *Error {
	return &Error{
		Kind: KindRefused, Message: fmt.Sprintf("worker name %q is in use by another process", e.Name),
		Holder: &dtaskv1.NameHolder{Host: e.Host, Address: e.Address, SilentMs: e.Silent.Milliseconds()},
	}
}

// rejectionKinds are the kinds of rejections; a caller cannot cause KindInternal.
var rejectionKinds = map[fsm.Class]Kind{
	fsm.ClassNotFound: KindNotFound, fsm.ClassEnded: KindEnded, fsm.ClassConflict: KindConflict, fsm.ClassRefused: KindRefused,
	fsm.ClassInternal: KindInternal,
}

// ofRejection returns the error for a rejection, or nil if a caller cannot cause it.
func ofRejection(r fsm.Reason) *Error {
	if kind, ok := rejectionKinds[r.Class()]; ok && kind != KindInternal {
		return &Error{Kind: kind, Message: r.String()}
	}
	return nil
}

// maxFaultBytes bounds the faults of one response: they travel in the trailer of the
// call, whose size proxies limit.
const maxFaultBytes = 64 << 10

// boundLines cuts lines off that exceed maxFaultBytes and says how many.
func boundLines(lines []string) []string {
	size := 0
	for i, line := range lines {
		if size += len(line); size > maxFaultBytes {
			return append(lines[:i:i], fmt.Sprintf("… and %d more", len(lines)-i))
		}
	}
	return lines
}

// status turns an error into the status that the caller of a method gets. An error
// that is a status already stays as it is.
func (s *Server) status(ctx context.Context, method string, err error) error {
	// A call whose caller has lost access ends with that, whatever it was doing.
	if cause := s.lostAccess(ctx); cause != nil {
		err = cause
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	e := meaning(err, s.cfg.Classify)
	if e == nil {
		return s.internal(ctx, method, "err", err)
	}
	r := errorTable[e.Kind]
	message := e.Message
	detail := &dtaskv1.ErrorDetail{Reason: r.reason, Faults: e.Faults, ClusterId: e.ClusterID, NameHolder: e.Holder}
	if e.Kind == KindBusy {
		detail.RetryAfterMs = retryAfterMS(e.RetryAfter)
	}
	if e.Kind == KindNotLeader {
		r.code, message = s.hint(detail)
	}
	return withDetail(r.code, message, detail)
}

// hint adds what this replica knows about the leader.
func (s *Server) hint(d *dtaskv1.ErrorDetail) (codes.Code, string) {
	id, address := "", ""
	if raft := s.cfg.Raft(); raft != nil {
		id, address = raft.Leader()
	}
	switch {
	case id == s.cfg.ServerID && s.termStarted():
		return codes.Unavailable, "leadership is being transferred" // to whom is not known yet
	case id == s.cfg.ServerID:
		// The term has not started yet: other replicas would redirect the caller to this
		// one.
		d.Reason, d.RetryAfterMs = dtaskv1.ErrorReason_ERROR_REASON_BUSY, retryAfterMS(0)
		return codes.Unavailable, "the leader is not ready yet"
	case id == "" || address == "":
		return codes.Unavailable, "no leader known"
	}
	d.LeaderId, d.LeaderAddress = id, address
	return codes.FailedPrecondition, fmt.Sprintf("the leader is %s at %s", id, address)
}

// retryAfterMS is a retry delay in milliseconds: at least 1, so that no client retries
// in a busy loop.
func retryAfterMS(d time.Duration) int64 {
	if d <= 0 {
		d = retryAfter
	}
	return max(d.Milliseconds(), 1)
}

func withDetail(code codes.Code, message string, d *dtaskv1.ErrorDetail) error {
	st, err := status.New(code, message).WithDetails(d)
	if err != nil { // the detail can't be encoded
		return status.Error(code, message)
	}
	return st.Err()
}
