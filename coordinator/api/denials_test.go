package api

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

var errCredential = errors.New("unknown token")

// Each refused call counts once, by its reason, with an audit log and without.
func TestDenialsAreCountedByReason(t *testing.T) {
	t.Parallel()
	for name, auditor := range map[string]Auditor{"with an audit log": new(memAudit), "without": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setupIdentities(t, func(cfg *Config) {
				cfg.Audit, cfg.LeaderWait = auditor, 0
				known := cfg.Authenticate
				cfg.Authenticate = func(ctx context.Context, method string) (context.Context, *auth.Principal, error) {
					if method == dtaskv1.JobService_Cancel_FullMethodName {
						return ctx, nil, errCredential
					}
					return known(ctx, method)
				}
				classify := cfg.Classify
				cfg.Classify = func(err error) *Error {
					if errors.Is(err, errCredential) {
						return &Error{Kind: KindUnauthenticated, Message: err.Error()}
					}
					return classify(err)
				}
			})
			r.submitAs(t, "submitter", "a", "etl", task("a"))
			submit := func(namespace string) error {
				h := header("b")
				h.Namespace = namespace
				_, err := r.send(as(t.Context(), "submitter"), request("b", h, task("a")))
				return err
			}
			get := func(ctx context.Context) error {
				_, err := r.jobs.GetJob(ctx, &dtaskv1.GetJobRequest{Id: "1"})
				return err
			}
			want := r.Denials()
			for _, x := range []struct {
				why  auth.Denial
				call func() error
			}{
				{auth.DenialNoCredential, func() error { return get(t.Context()) }},
				{auth.DenialCredential, func() error {
					_, err := r.jobs.Cancel(t.Context(), &dtaskv1.CancelRequest{Job: "1"})
					return err
				}},
				{auth.DenialRole, func() error { return get(as(t.Context(), "metrics")) }},
				{auth.DenialScope, func() error { return submit("ml") }}, // which the caller does not have
			} {
				if err := x.call(); err == nil {
					t.Errorf("%s: the call succeeds", x.why)
				}
				want[x.why.String()]++
				if got := r.Denials(); !maps.Equal(got, want) {
					t.Errorf("%s: got %v, want %v", x.why, got, want)
				}
			}
			if len(want) != int(auth.DenialCount) {
				t.Errorf("the reasons are %v, want %d", want, auth.DenialCount)
			}
		})
	}
}

// The method of a join and the kind of an error decide where the table of rights does not.
func TestWhyACallIsDenied(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	join, sessions := dtaskv1.AuthService_Join_FullMethodName, dtaskv1.WorkerService_Sessions_FullMethodName
	for _, x := range []struct {
		method string
		cause  error
		want   auth.Denial
	}{
		{join, &Error{Kind: KindDenied, Message: "the join string has expired"}, auth.DenialJoinString},
		{join, &Error{Kind: KindUnauthenticated, Message: "unknown"}, auth.DenialCredential},
		{sessions, &Error{Kind: KindDenied, Message: "the name of another worker"}, auth.DenialScope},
		{sessions, &Error{Kind: KindRefused, Message: "the name is in use"}, auth.DenialOther},
		{sessions, &auth.DeniedError{Principal: &auth.Principal{Role: auth.Reader}, Method: sessions}, auth.DenialRole},
		{sessions, &auth.DeniedError{Method: sessions}, auth.DenialNoCredential},
	} {
		if got := r.denialOf(x.method, x.cause, r.status(t.Context(), x.method, x.cause)); got != x.want {
			t.Errorf("%s: %v: got %s, want %s", x.method, x.cause, got, x.want)
		}
	}
}
