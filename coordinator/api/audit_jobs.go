package api

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/internal/audit"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxAuditedJobs and maxAuditDelay bound what one line says about a stream of
	// submissions that never pauses.
	maxAuditedJobs  = 1000
	maxAuditDelay   = time.Second
	maxAuditedNames = 8
)

// submissions makes lines about a stream of submissions, which may last as long as its
// client: one when everything that was sent has its result, so that a batch of jobs is one
// line. It sees the messages of the stream.
type submissions struct {
	grpc.ServerStream

	server *Server
	home   string // namespace of jobs that name none

	mu         sync.Mutex // guards what follows
	last       uint64     // highest number of a job
	received   uint64     // jobs
	complete   uint64     // jobs whose last part was received
	answered   uint64     // jobs
	namespaces map[string]bool
	since      time.Time // first result that has no line
	stored     int       // results that have no line
	unknown    int       // jobs that may be stored
	failed     map[string]int
	lowest     string // first and last job that were stored
	highest    string
}

func (s *Server) auditSubmissions(stream grpc.ServerStream) *submissions {
	home := auth.DefaultNamespace
	if p := auth.FromContext(stream.Context()); p != nil {
		home = p.Home()
	}
	a := &submissions{ServerStream: stream, server: s, home: home}
	a.reset()
	return a
}

// reset forgets what has a line. The caller holds mu.
func (a *submissions) reset() {
	if a.answered >= a.received { // else those of the others remain
		a.namespaces = make(map[string]bool)
	}
	a.failed = make(map[string]int)
	a.since, a.stored, a.unknown, a.lowest, a.highest = time.Time{}, 0, 0, "", ""
}

// RecvMsg implements grpc.ServerStream.
func (a *submissions) RecvMsg(m any) error {
	err := a.ServerStream.RecvMsg(m)
	if r, ok := m.(*dtaskv1.SubmitRequest); ok && err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, p := range r.GetParts() {
			if !p.GetMore() {
				a.complete++
			}
			if p.GetJob() <= a.last {
				continue
			}
			a.last = p.GetJob()
			a.received++
			if h := p.GetHeader(); h != nil {
				a.namespaces[cmp.Or(h.GetNamespace(), a.home)] = true
			}
		}
	}
	return err
}

// SendMsg implements grpc.ServerStream.
func (a *submissions) SendMsg(m any) error {
	err := a.ServerStream.SendMsg(m)
	if r, ok := m.(*dtaskv1.SubmitResponse); ok {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, result := range r.GetResults() {
			a.note(result)
		}
		if a.answered >= a.received || a.stored >= maxAuditedJobs || time.Since(a.since) >= maxAuditDelay {
			a.flush()
		}
	}
	return err
}

// note notes the result of a job. The caller holds mu.
func (a *submissions) note(r *dtaskv1.SubmitResult) {
	a.answered++
	if a.since.IsZero() {
		a.since = time.Now()
	}
	id := r.GetStored().GetId()
	switch {
	case id != "":
		a.stored++
		a.lowest, a.highest = cmp.Or(a.lowest, id), id
	case codes.Code(r.GetCode()) == codes.PermissionDenied: //nolint:gosec // a code
		denial := RecordOf(a.Context(), dtaskv1.JobService_Submit_FullMethodName)
		denial.Decision, denial.Reason = audit.Denied, r.GetMessage()
		a.server.cfg.Audit.Record(denial)
	case r.GetDetail().GetReason() == dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN:
		a.unknown++
	case !isTransient(r.GetDetail()):
		a.failed[reasonText(r)]++
	}
}

// isTransient reports whether the client repeats a submission with this result.
func isTransient(d *dtaskv1.ErrorDetail) bool {
	return d.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER || d.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_BUSY
}

func reasonText(r *dtaskv1.SubmitResult) string {
	if reason := r.GetDetail().GetReason(); reason != dtaskv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return reason.String()
	}
	return codes.Code(r.GetCode()).String() //nolint:gosec // a code
}

// end makes the last line, when the stream has ended. Jobs that have no result then, because
// the client has left, may be stored.
func (a *submissions) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.complete > a.answered {
		a.unknown += int(a.complete - a.answered) //nolint:gosec // a stream has fewer parts
	}
	a.flush()
}

// flush makes a line about the results that have none. The caller holds mu.
func (a *submissions) flush() {
	defer a.reset()
	if a.stored == 0 && a.unknown == 0 && len(a.failed) == 0 {
		return
	}
	r := RecordOf(a.Context(), dtaskv1.JobService_Submit_FullMethodName)
	switch a.stored {
	case 0:
		if a.unknown == 0 {
			r.Decision = audit.Failed
		}
	case 1:
		r.Object = "job " + a.lowest
	default:
		r.Object = fmt.Sprintf("%d jobs, %s to %s", a.stored, a.lowest, a.highest)
		r.Count = uint64(a.stored) //nolint:gosec // positive
	}
	var reasons []string
	if a.unknown > 0 {
		reasons = append(reasons, fmt.Sprintf("%d unknown: %s", a.unknown, dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN))
	}
	for _, reason := range slices.Sorted(maps.Keys(a.failed)) {
		reasons = append(reasons, fmt.Sprintf("%d failed: %s", a.failed[reason], reason))
	}
	r.Reason = strings.Join(reasons, ", ")
	names := slices.Sorted(maps.Keys(a.namespaces))
	r.NS = strings.Join(names[:min(len(names), maxAuditedNames)], ",")
	a.server.cfg.Audit.Record(r)
}
