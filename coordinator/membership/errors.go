package membership

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/coordinator/raftnode"
)

// Kind is what an Error means to the caller.
type Kind uint8

// The kinds of errors. In all of them nothing has happened.
const (
	NotLeader Kind = iota + 1 // another replica leads, or will
	Busy                      // the call may be repeated after a pause
	NotFound                  // there is no such member
	Conflict                  // the member's state does not allow the call
	Invalid                   // the request breaks a rule
	Refused                   // the cluster does not accept the replica or the change
)

// Error is an error with its kind.
type Error struct {
	Kind       Kind
	Message    string
	RetryAfter time.Duration // with Busy; 0 = the default of package api

	late bool // a replica did not answer in time
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

var errNotLeader = &Error{Kind: NotLeader, Message: "this replica is not the leader"}

// errChanging is returned for a change that had to wait for another one until its deadline.
var errChanging = busy("another change of the members is in progress: one at a time")

func invalid(message string) error { return &Error{Kind: Invalid, Message: message} }

func notFound(serverID string) error {
	return &Error{Kind: NotFound, Message: fmt.Sprintf(
		"server %q not found; dtaskctl cluster status lists the members", serverID)}
}

func refused(format string, args ...any) error {
	return &Error{Kind: Refused, Message: fmt.Sprintf(format, args...)}
}

// busy is for calls that can succeed after a second.
func busy(format string, args ...any) error {
	return &Error{Kind: Busy, Message: fmt.Sprintf(format, args...), RetryAfter: time.Second}
}

func otherInstance(serverID string) error {
	return refused("server id %s is recorded with another data directory: its own was lost or replaced; "+
		"start it with its old data directory, or with --auto-rejoin to get a new server id", serverID)
}

func wasRemoved(serverID string) error {
	return refused("server %s was removed from the cluster and its id cannot be reused; to add it again, start it with an "+
		"empty data directory and a new --id, and run dtaskctl cluster add", serverID)
}

func catchingUp(behind []raftnode.Server) error {
	ids := make([]string, len(behind))
	for i, m := range behind {
		ids[i] = m.ID
	}
	return busy("catching up: %s: other changes of the members wait", strings.Join(ids, ", "))
}

// dialing precedes the cause in gRPC's text about a connection that failed.
const dialing = "transport: Error while dialing: "

// isLate reports whether an error of Peers means that there was no answer in time.
func isLate(err error) bool { return status.Code(err) == codes.DeadlineExceeded }

// errorText returns the text of an error of Peers for the log, without what gRPC adds.
func errorText(err error) string {
	text := status.Convert(err).Message()
	if i := strings.LastIndex(text, dialing); i >= 0 {
		text = strings.TrimSuffix(text[i+len(dialing):], `"`)
	}
	return text
}
