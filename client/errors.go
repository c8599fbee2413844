package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// The kinds of errors. Test for them with errors.Is.
var (
	// ErrNotFound means that the job, task or log is unknown or expired. Don't
	// retry.
	ErrNotFound = errors.New("not found")
	// ErrConflict means that the idempotency key belongs to another job, or that
	// the state of the job or task does not allow the call, for example because it
	// has ended. Read its state first.
	ErrConflict = errors.New("conflict")
	// ErrRefused means that the cluster rejects the request: a limit, or a missing
	// permission. Change the request.
	ErrRefused = errors.New("refused")
	// ErrBusy is an ErrRefused that is temporary: the cluster was overloaded, or
	// the owner exceeded their rate limit, until Config.Timeout. The call had no
	// effect. Retry later, a submission with Error.Key.
	ErrBusy = fmt.Errorf("busy: %w", ErrRefused)
	// ErrForeignCluster is an ErrRefused: no address belongs to the client's
	// cluster. Correct the addresses or Config.Cluster; after dtaskd recover, create
	// a new Client.
	ErrForeignCluster = fmt.Errorf("another cluster: %w", ErrRefused)
	// ErrUnauthenticated is an ErrRefused: the cluster doesn't know the caller. The token
	// is missing, expired or revoked. Set another Config.Token.
	ErrUnauthenticated = fmt.Errorf("unauthenticated: %w", ErrRefused)
	// ErrUntrusted is an ErrRefused: no address leads to a coordinator that this client
	// trusts. The CA is another one, this machine's clock is wrong, or only one side uses
	// TLS. Nothing was sent. Correct Config.Credentials, the addresses or the clock.
	ErrUntrusted = fmt.Errorf("untrusted: %w", ErrRefused)
	// ErrClock is an ErrUntrusted: the certificates of the coordinators are not valid by the
	// clock of this machine. Correct the clock; a machine that has just started may do that
	// itself, so retrying helps.
	ErrClock = fmt.Errorf("clock: %w", ErrUntrusted)
	// ErrInvalid means that the request is malformed. Error.Faults has one line
	// per fault. Correct the request.
	ErrInvalid = errors.New("invalid")
	// ErrCompacted means that a watch can't be resumed after an index because
	// older changes are no longer available. Start a new watch.
	ErrCompacted = errors.New("compacted")
	// ErrUnreachable means that no coordinator took the call before the timeout.
	// Retry, a submission with Error.Key.
	ErrUnreachable = errors.New("unreachable")
)

// Error is an error of a call.
type Error struct {
	// Kind is one of the Err… values of this package, or nil for an internal error
	// of a coordinator.
	Kind error
	// Message describes the operation and the error.
	Message string
	// Faults has one line per fault of an invalid request.
	Faults []string
	// Unknown means that the call may have had its effect.
	Unknown bool
	// Answered means, with ErrUnreachable, that a coordinator answered, but none took the
	// call: no leader is known, or it is not ready.
	Answered bool
	// Key is the idempotency key of a submission or an update, with ErrUnreachable,
	// ErrBusy and ErrForeignCluster.
	Key string
}

// Error implements error.
func (e *Error) Error() string {
	if len(e.Faults) > 0 {
		return e.Message + ": " + strings.Join(e.Faults, "; ")
	}
	return e.Message
}

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

// action is what to do after a failed attempt.
type action uint8

const (
	fail       action = iota + 1 // return the error: a retry would fail too
	tryOther                     // try another address
	tryLeader                    // try the leader
	tryOwn                       // the address is of another cluster: try those of this one
	retryLater                   // retry at the same address after a delay
)

// An errorClass says how to handle an error.
type errorClass struct {
	next    action
	kind    error // of the Error, if next is fail
	unknown bool  // the call may have had its effect
}

// byReason maps the reasons that coordinators give. It takes precedence over
// byCode.
var byReason = map[dtaskv1.ErrorReason]errorClass{
	dtaskv1.ErrorReason_ERROR_REASON_UNSPECIFIED:     {next: fail, unknown: true},
	dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER:      {next: tryLeader},
	dtaskv1.ErrorReason_ERROR_REASON_BUSY:            {next: retryLater},
	dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN: {next: tryOther, unknown: true},
	dtaskv1.ErrorReason_ERROR_REASON_CONFLICT:        {next: fail, kind: ErrConflict},
	dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND:       {next: fail, kind: ErrNotFound},
	dtaskv1.ErrorReason_ERROR_REASON_INVALID:         {next: fail, kind: ErrInvalid},
	dtaskv1.ErrorReason_ERROR_REASON_REFUSED:         {next: fail, kind: ErrRefused},
	dtaskv1.ErrorReason_ERROR_REASON_COMPACTED:       {next: fail, kind: ErrCompacted},
	dtaskv1.ErrorReason_ERROR_REASON_FOREIGN_CLUSTER: {next: tryOwn},
}

// byCode is for statuses without a reason. Coordinators always give one, so
// gRPC itself made such a status: connection errors, timeouts, proxies,
// oversized messages.
var byCode = map[codes.Code]errorClass{
	codes.OK:                 {next: fail},
	codes.Canceled:           {next: tryOther, unknown: true},
	codes.Unknown:            {next: fail, unknown: true},
	codes.InvalidArgument:    {next: fail, kind: ErrInvalid},
	codes.DeadlineExceeded:   {next: tryOther, unknown: true},
	codes.NotFound:           {next: fail, kind: ErrNotFound},
	codes.AlreadyExists:      {next: fail, kind: ErrConflict},
	codes.PermissionDenied:   {next: fail, kind: ErrRefused},
	codes.ResourceExhausted:  {next: fail, kind: ErrRefused},
	codes.FailedPrecondition: {next: fail, kind: ErrConflict},
	codes.Aborted:            {next: tryOther, unknown: true},
	codes.OutOfRange:         {next: fail, kind: ErrInvalid},
	codes.Unimplemented:      {next: fail, kind: ErrRefused},
	codes.Internal:           {next: tryOther, unknown: true},
	codes.Unavailable:        {next: tryOther, unknown: true},
	codes.DataLoss:           {next: fail},
	codes.Unauthenticated:    {next: fail, kind: ErrUnauthenticated},
}

// A classifiedError is an errorClass with the details of the status.
type classifiedError struct {
	errorClass
	message string
	leader  string        // address, with tryLeader; empty if unknown
	pause   time.Duration // requested delay, with retryLater
	unsent  bool          // no coordinator was reached
	full    bool          // with retryLater: the cluster is overloaded; otherwise the leader is not ready
	faults  []string
	cluster string // of the coordinator, with tryOwn
	// fault is the kind of an error that another attempt at this address would not
	// change: ErrUntrusted or ErrClock for a connection that must not be used, or that of a
	// socketError; nil for others.
	fault error
	local error // the error itself, if it isn't a status
}

// classify classifies the error of an attempt.
func classify(err error) classifiedError {
	if untrusted, ok := errors.AsType[*untrustedError](err); ok {
		return classifiedError{errorClass: errorClass{next: tryOther}, message: untrusted.Error(), unsent: true, fault: untrusted.kind()}
	}
	if socket, ok := errors.AsType[*socketError](err); ok {
		return classifiedError{errorClass: errorClass{next: tryOther}, message: socket.Error(), unsent: true, fault: socket.kind}
	}
	st, ok := status.FromError(err)
	if !ok {
		return classifiedError{errorClass: errorClass{next: fail}, message: err.Error(), local: err}
	}
	v, ok := byCode[st.Code()]
	if !ok {
		v = errorClass{next: fail, unknown: true}
	}
	if strings.Contains(st.Message(), tlsconf.NotTrusted) {
		return classifiedError{errorClass: errorClass{next: tryOther}, message: plain(st.Message()), unsent: true, fault: ErrUntrusted}
	}
	_, unsent := errors.AsType[*unsentError](err)
	unsent = unsent || strings.Contains(st.Message(), dialing)
	if unsent {
		v.unknown = false // not sent without a connection
	}
	j := classifiedError{errorClass: v, message: plain(st.Message()), unsent: unsent}
	for _, d := range st.Details() {
		detail, ok := d.(*dtaskv1.ErrorDetail)
		if !ok {
			continue
		}
		if v, ok := byReason[detail.GetReason()]; ok {
			j.errorClass = v
		}
		if st.Code() == codes.Unauthenticated {
			j.kind = ErrUnauthenticated // which the reasons don't distinguish
		}
		j.full = detail.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_BUSY && st.Code() == codes.ResourceExhausted
		j.leader = detail.GetLeaderAddress()
		j.pause = time.Duration(min(max(detail.GetRetryAfterMs(), 0), maxRetryDelay.Milliseconds())) * time.Millisecond
		j.faults = detail.GetFaults()
		j.cluster = detail.GetClusterId()
	}
	return j
}

// maxRetryDelay bounds the delay that a coordinator may request.
const maxRetryDelay = time.Hour

// dialing starts gRPC's description of a failed connect.
const dialing = "Error while dialing: "

// unsentError is the error of a call that was not sent.
type unsentError struct{ st *status.Status }

// Error implements error.
func (e *unsentError) Error() string { return e.st.Err().Error() }

// GRPCStatus lets status.FromError return the status.
func (e *unsentError) GRPCStatus() *status.Status { return e.st }

// plain removes gRPC's wrapping from the message of a failed connect:
// "connect: connection refused" remains.
func plain(message string) string {
	for _, handshake := range []string{tlsconf.NotTrusted, "authentication handshake failed: "} {
		if i := strings.LastIndex(message, handshake); i >= 0 {
			return strings.TrimSuffix(strings.TrimPrefix(message[i:], "authentication "), `"`)
		}
	}
	i := strings.LastIndex(message, dialing)
	if i < 0 {
		return message
	}
	cause := strings.TrimSuffix(strings.TrimPrefix(message[i+len(dialing):], "dial tcp "), `"`)
	if _, refusal, ok := strings.Cut(cause, ": connect: "); ok {
		return refusal // callers name the address
	}
	return cause
}
