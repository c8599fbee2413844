package api

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/internal/audit"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Auditor keeps the audit log. Its methods never wait.
type Auditor interface {
	// Admit returns an error if a change must not happen now, because it could not be
	// recorded.
	Admit() error
	// Reads reports whether read calls are recorded.
	Reads() bool
	// Record adds a line. Its number, time, index and hash are set.
	Record(r audit.Record)
}

// auditRetry is the retry delay of a change that could not be recorded: a disk that is
// full does not get space within milliseconds.
const auditRetry = 5 * time.Second

// admitAudit refuses a change that could not be recorded. Jobs are refused one by one, by
// the sequencer.
func (s *Server) admitAudit(method string) error {
	if s.cfg.Audit == nil || audit.ClassOf(method) != audit.Change || method == dtaskv1.JobService_Submit_FullMethodName {
		return nil
	}
	if err := s.cfg.Audit.Admit(); err != nil {
		return &Error{Kind: KindBusy, Message: err.Error(), RetryAfter: auditRetry}
	}
	return nil
}

// RecordOf returns a line about a call: who made it, and from where.
func RecordOf(ctx context.Context, method string) audit.Record {
	r := audit.Record{Method: method, Decision: audit.Allowed}
	if p := auth.FromContext(ctx); p != nil {
		r.Who, r.Identity, r.Via = p.Name, p.ID, string(p.Via)
	}
	if p, ok := peer.FromContext(ctx); ok {
		r.Remote = p.Addr.String()
		if p.Addr.Network() == "unix" {
			r.Remote = "unix"
		}
	}
	return r
}

// noteDenial counts and records that a call was refused for its caller. err is the status that
// it gets for the cause.
func (s *Server) noteDenial(ctx context.Context, method string, cause, err error) {
	if !isDenial(err) || s.endedWithAccess(ctx, method, err) {
		return
	}
	s.CountDenial(s.denialOf(method, cause, err))
	if s.cfg.Audit == nil {
		return
	}
	r := RecordOf(ctx, method)
	r.Decision, r.Reason = audit.Denied, status.Convert(err).Message()
	s.cfg.Audit.Record(r)
}

// isDenial reports whether a status says that the caller has not the right: it isn't one of
// a cluster that refuses for its own state.
func isDenial(err error) bool {
	code := status.Code(err)
	return code == codes.Unauthenticated || code == codes.PermissionDenied
}

// endedWithAccess reports whether a change ended because its caller lost access meanwhile: it
// may have had its effect, so that it must not look like one that was refused. The jobs of a
// stream are recorded one by one.
func (s *Server) endedWithAccess(ctx context.Context, method string, err error) bool {
	return isDenial(err) && audit.ClassOf(method).IsChange() && method != dtaskv1.JobService_Submit_FullMethodName && s.lostAccess(ctx) != nil
}

// isRecorded reports whether calls of a method are recorded that are not refused. Replicas
// call each other all the time; only what they change is recorded.
func (s *Server) isRecorded(ctx context.Context, method string) bool {
	if s.cfg.Audit == nil {
		return false
	}
	class := audit.ClassOf(method)
	p := auth.FromContext(ctx)
	switch {
	case class.IsChange():
		return true
	case p != nil && p.Role == auth.Replica:
		return false
	case class == audit.Always:
		return true
	}
	return class == audit.Read && s.cfg.Audit.Reads()
}

// auditCall records a call that has ended and was not refused for its caller. err is its
// status, and answer what the handler returned. A call that another replica or a later time must answer is not recorded: nothing
// was decided. The reason of a failure is its code alone: messages may quote what is in a
// job.
func (s *Server) auditCall(ctx context.Context, method string, req, answer any, err error) {
	lost := s.endedWithAccess(ctx, method, err)
	if !s.isRecorded(ctx, method) || isDenial(err) && !lost || isUndecided(err) {
		return
	}
	r := RecordOf(ctx, method)
	r.NS, r.Object = s.auditObject(caller(ctx), req)
	if joined, ok := answer.(*dtaskv1.JoinResponse); ok {
		r.Made = joined.GetIdentity().GetId() // nil if the call failed
	}
	switch {
	case lost:
		r.Reason = status.Convert(err).Message()
	case err != nil:
		r.Reason = codeName(err).String()
		if !mayHaveHappened(err) {
			r.Decision = audit.Failed
		}
	}
	s.cfg.Audit.Record(r)
}

// codeName returns the code of a status, as the API names it.
func codeName(err error) fmt.Stringer {
	if d := detailOf(err); d != nil && d.GetReason() != dtaskv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return d.GetReason()
	}
	return status.Code(err)
}

func detailOf(err error) *dtaskv1.ErrorDetail {
	for _, d := range status.Convert(err).Details() {
		if detail, ok := d.(*dtaskv1.ErrorDetail); ok {
			return detail
		}
	}
	return nil
}

// mayHaveHappened reports whether a call with a status may have had its effect.
func mayHaveHappened(err error) bool {
	return detailOf(err).GetReason() == dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN
}

// isUndecided reports whether a status refers the caller to another replica or to a later
// time.
func isUndecided(err error) bool {
	if err == nil || mayHaveHappened(err) {
		return false
	}
	switch detailOf(err).GetReason() { //nolint:exhaustive // the others are decisions
	case dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER, dtaskv1.ErrorReason_ERROR_REASON_BUSY:
		return true
	}
	return status.Code(err) == codes.Unavailable
}

// auditObject returns the namespace and the object of a request.
func (s *Server) auditObject(p *auth.Principal, req any) (ns, object string) {
	switch r := req.(type) {
	case *dtaskv1.JoinRequest:
		return "", auditJoin(r)
	case *dtaskv1.RotateCARequest:
		return "", fmt.Sprintf("finish %t, compromised %t", r.GetFinish(), r.GetCompromised())
	case *dtaskv1.CreateTokenRequest:
		return strings.Join(r.GetNamespaces(), ","), fmt.Sprintf("%s %s", r.GetRole(), r.GetName())
	case *dtaskv1.CreateJoinTokenRequest:
		return strings.Join(r.GetNamespaces(), ","), fmt.Sprintf("for a %s, role %q, name %q", r.GetPurpose(), r.GetRole(), r.GetNamePattern())
	case *dtaskv1.SetBackupScheduleRequest:
		return "", "to " + r.GetSchedule().GetTo()
	case *dtaskv1.WriteBackupRequest:
		return "", "to " + r.GetTo()
	case *dtaskv1.HoldUpgradeRequest:
		return "", fmt.Sprintf("release %t", r.GetRelease())
	case *dtaskv1.SetScheduleRequest:
		h := r.GetPart().GetHeader()
		ns, _ = scheduleNamespace(p, h.GetNamespace())
		return ns, "schedule " + h.GetName()
	case *dtaskv1.GetScheduleRequest, *dtaskv1.PauseScheduleRequest, *dtaskv1.ResumeScheduleRequest, *dtaskv1.DeleteScheduleRequest,
		*dtaskv1.RunScheduleRequest, *dtaskv1.BackfillScheduleRequest:
		named, _ := r.(namedSchedule)
		ns, _ = scheduleNamespace(p, named.GetNamespace())
		return ns, "schedule " + named.GetName()
	case *dtaskv1.SetLimitRequest, *dtaskv1.ListLimitsRequest, *dtaskv1.DeleteLimitRequest:
		named, _ := r.(interface{ GetName() string })
		return "", "limit " + named.GetName()
	case *dtaskv1.SetQueueRequest, *dtaskv1.ListQueuesRequest, *dtaskv1.PauseQueueRequest, *dtaskv1.ResumeQueueRequest, *dtaskv1.DeleteQueueRequest:
		named, _ := r.(interface{ GetName() string })
		return "", "queue " + named.GetName()
	case interface{ GetJob() string }:
		object = "job " + r.GetJob()
		if t, ok := req.(interface{ GetTask() string }); ok && t.GetTask() != "" {
			object += "/" + t.GetTask()
		}
		return s.auditNamespace(r.GetJob()), object
	case interface{ GetServerId() string }:
		return "", r.GetServerId()
	case interface{ GetName() string }:
		return "", r.GetName()
	case interface{ GetId() uint64 }:
		return "", fmt.Sprint(r.GetId())
	case interface{ GetId() string }:
		return s.auditNamespace(r.GetId()), "job " + r.GetId()
	case interface{ GetNamespace() string }:
		return r.GetNamespace(), ""
	}
	return "", ""
}

// auditJoin describes who joins, and whom it replaces.
func auditJoin(r *dtaskv1.JoinRequest) string {
	who := r.GetPurpose()
	if r.GetName() != "" {
		who += " " + r.GetName()
	}
	if r.GetReplace() {
		who += audit.Replacing
	}
	if r.GetReplaceServer() != "" {
		who += ", replacing " + r.GetReplaceServer()
	}
	return fmt.Sprintf("%s, join token %d", who, r.GetJoinToken())
}

// auditNamespace returns the namespace of a job; empty if the job or its state is unknown.
func (s *Server) auditNamespace(job string) string {
	id, err := parseJobID(job)
	if err != nil {
		return ""
	}
	h, err := s.headerOf(id)
	if err != nil || h == nil {
		return ""
	}
	return namespaceOf(h)
}

// auditStream returns the stream that the handler of a method gets, and what to call with
// the status of the call when it has ended.
func (s *Server) auditStream(stream grpc.ServerStream, method string) (grpc.ServerStream, func(error)) {
	switch {
	case !s.isRecorded(stream.Context(), method):
		return stream, func(error) {}
	case method == dtaskv1.JobService_Submit_FullMethodName:
		jobs := s.auditSubmissions(stream)
		return jobs, func(error) { jobs.end() }
	}
	audited := &auditedStream{ServerStream: stream}
	return audited, func(err error) { s.auditCall(stream.Context(), method, audited.first, nil, err) }
}

// auditedStream keeps the first request of a stream, which says what it is about.
type auditedStream struct {
	grpc.ServerStream

	first any
}

// RecvMsg implements grpc.ServerStream. Streams of responses receive one request.
func (s *auditedStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil && s.first == nil {
		s.first = m
	}
	return err
}
