package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// The kinds of errors of a call. Test for them with errors.Is.
var (
	// ErrNotFound is returned when the job, task or log is not known, or not
	// any more; the caller should not repeat.
	ErrNotFound = errors.New("not found")
	// ErrConflict is returned when the idempotency key was used for another
	// job, or the thing has ended already; the caller should look at it.
	ErrConflict = errors.New("conflict")
	// ErrRefused is returned when the cluster does not want this: a limit, a
	// missing right; the caller should change the request.
	ErrRefused = errors.New("refused")
	// ErrBusy is an ErrRefused that time may heal: something was full, or the
	// owner submitted too fast, until Config.Timeout had passed. Nothing happened;
	// the caller may repeat later, a submission with Error.Key.
	ErrBusy = fmt.Errorf("busy: %w", ErrRefused)
	// ErrInvalid is returned when the request makes no sense; Error.Faults has
	// one line for each fault; the caller should correct it.
	ErrInvalid = errors.New("invalid")
	// ErrCompacted is returned when a watch was to go on after an index and it
	// cannot be told any more what changed since; the caller should begin anew.
	ErrCompacted = errors.New("compacted")
	// ErrUnreachable is returned when no coordinator took the call before the
	// time-out; the caller may repeat, a submission with Error.Key.
	ErrUnreachable = errors.New("unreachable")
)

// Error is an error of a call with its details.
type Error struct {
	// Kind is one of the Err… values of this package, or nil if a coordinator
	// had an error inside.
	Kind error
	// Message says what was done and what is wrong, for people.
	Message string
	// Faults has one line per fault, with ErrInvalid.
	Faults []string
	// Unknown is set if the call may have had its effect all the same.
	Unknown bool
	// Key is the idempotency key of a submission or an update, with
	// ErrUnreachable and ErrBusy.
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

// next is what to do after a try that did not succeed.
type action uint8

const (
	fail       action = iota + 1 // repeating does not help: tell the caller
	tryOther                     // another address may do better
	tryLeader                    // go to the leader
	retryLater                   // the leader is busy: the same again after a pause
)

// verdict is the meaning of a failed try.
type errorClass struct {
	next    action
	kind    error // of the Error if next is final
	unknown bool  // it may have happened
}

// byReason is what coordinators mean; it comes first.
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
}

// byCode is for a status without a reason. Coordinators always give one, so
// such a status was made by gRPC itself: the connection, a time-out, a proxy, a
// message too large.
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
	codes.Unauthenticated:    {next: fail, kind: ErrRefused},
}

// A judgement is a verdict with what the status carried.
type classifiedError struct {
	errorClass
	message string
	leader  string        // address, with redirect; empty if not known
	pause   time.Duration // with later
	full    bool          // with later: something is full; otherwise the leader is not ready
	faults  []string
	local   error // the error itself, if it came from this side
}

// judge tells what the error of a try means. A hang is a status by then.
func classify(err error) classifiedError {
	st, ok := status.FromError(err)
	if !ok {
		return classifiedError{errorClass: errorClass{next: fail}, message: err.Error(), local: err}
	}
	v, ok := byCode[st.Code()]
	if !ok {
		v = errorClass{next: fail, unknown: true}
	}
	if _, ok := errors.AsType[*unsentError](err); ok || strings.Contains(st.Message(), dialing) {
		v.unknown = false // without a connection nothing was sent
	}
	j := classifiedError{errorClass: v, message: plain(st.Message())}
	for _, d := range st.Details() {
		detail, ok := d.(*dtaskv1.ErrorDetail)
		if !ok {
			continue
		}
		if v, ok := byReason[detail.GetReason()]; ok {
			j.errorClass = v
		}
		j.full = detail.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_BUSY && st.Code() == codes.ResourceExhausted
		j.leader = detail.GetLeaderAddress()
		j.pause = time.Duration(min(max(detail.GetRetryAfterMs(), 0), maxRetryDelay.Milliseconds())) * time.Millisecond
		j.faults = detail.GetFaults()
	}
	return j
}

// longestPause bounds what a replica may ask a client to wait.
const maxRetryDelay = time.Hour

// dialing is how gRPC begins to tell why there is no connection.
const dialing = "Error while dialing: "

// unsentError is why a call was not begun.
type unsentError struct{ st *status.Status }

// Error implements error.
func (e *unsentError) Error() string { return e.st.Err().Error() }

// GRPCStatus makes it a status.
func (e *unsentError) GRPCStatus() *status.Status { return e.st }

// plain takes gRPC's wrapping off a failed connect, down to what the system
// said: "connect: connection refused".
func plain(message string) string {
	i := strings.LastIndex(message, dialing)
	if i < 0 {
		return message
	}
	return strings.TrimSuffix(strings.TrimPrefix(message[i+len(dialing):], "dial tcp "), `"`)
}
