package api

import (
	"cmp"
	"context"

	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// The rights of callers. A call is authenticated once, before it has a goroutine, and its
// principal is in its context from then on. What a caller may not know of does not exist
// for it: the error is that of an unknown job, with the same message.

var (
	// open calls a cluster that has no identities.
	open = &auth.Principal{Role: auth.Admin, Via: auth.ViaOpen}
	// nobody sees no job.
	nobody = &auth.Principal{Role: auth.Reader}
)

// authenticate returns the context of a call with its principal, or why the call is
// refused.
func (s *Server) authenticate(ctx context.Context, method string) (context.Context, error) {
	p := open
	if s.cfg.Authenticate != nil {
		var err error
		if ctx, p, err = s.cfg.Authenticate(ctx, method); err != nil {
			return ctx, err
		}
	}
	ctx = auth.NewContext(ctx, p)
	return ctx, authorize(ctx, method)
}

// authorize refuses a call that the table of rights does not allow. Clients of later
// versions recognize a method that this version does not have by its code.
func authorize(ctx context.Context, method string) error {
	p := auth.FromContext(ctx)
	_, err := auth.Authorize(p, method)
	if err != nil && p != nil && !auth.IsMethod(method) {
		return withDetail(codes.Unimplemented, err.Error(), &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_REFUSED})
	}
	return err //nolint:wrapcheck // of the table of this package
}

// caller returns the principal of a call.
func caller(ctx context.Context) *auth.Principal {
	if p := auth.FromContext(ctx); p != nil {
		return p
	}
	return nobody
}

// namespaceOf returns the namespace of a job.
func namespaceOf(h *dtaskv1.JobHeader) string { return cmp.Or(h.GetNamespace(), auth.DefaultNamespace) }

// sees reports whether a caller may know of a job.
func sees(p *auth.Principal, h *dtaskv1.JobHeader) bool { return p.SeesAll() || p.Sees(namespaceOf(h)) }

// shownNamespaces returns the namespaces whose jobs a listing shows: those that the caller
// has, or one of them if the request names it; nil = all.
func shownNamespaces(p *auth.Principal, named string) []string {
	switch {
	case named == "" && p.SeesAll():
		return nil
	case named == "":
		return append([]string{}, p.Namespaces...)
	case p.Sees(named):
		return []string{named}
	}
	return []string{}
}

// isForeign reports whether a caller must not know of a job of the state.
func isForeign(st *fsm.State, p *auth.Principal, id fsm.JobID) bool {
	if p.SeesAll() {
		return false
	}
	job, ok := st.Job(id)
	return ok && !sees(p, job.Header)
}

// admitJob checks that the caller may know of the job that a request names. An invalid ID
// is reported by the handler. The namespace of a job never changes, and its number is
// never given again, so that the handler need not check again.
func (s *Server) admitJob(ctx context.Context, m method, req any) error {
	p := caller(ctx)
	if p.SeesAll() {
		return nil
	}
	id, err := parseJobID(namedJob(req))
	if err != nil {
		return nil //nolint:nilerr // the handler reports it
	}
	if m.access == accessPropose {
		// A deposed leader must not report an unknown job.
		if err := s.Confirm(ctx); err != nil {
			return err
		}
	}
	h, err := s.headerOf(id)
	if err == nil && (h == nil || !sees(p, h)) {
		err = s.missingJob(id)
	}
	return err
}

// namedJob returns the ID of the job that a request names.
func namedJob(req any) string {
	switch r := req.(type) {
	case interface{ GetJob() string }:
		return r.GetJob()
	case interface{ GetId() string }:
		return r.GetId()
	}
	return ""
}

// headerOf returns the header of a job in the state or in history; nil for an unknown job.
func (s *Server) headerOf(id fsm.JobID) (h *dtaskv1.JobHeader, err error) {
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		if job, ok := st.Job(id); ok {
			h = job.Header
		}
	})
	if h != nil {
		return h, nil
	}
	head, ok, err := s.archivedJob(id)
	if !ok || err != nil {
		return nil, err
	}
	return head.Header, nil
}
