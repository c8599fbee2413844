package access

import (
	"errors"
	"net/http"

	"github.com/dtask/dtask/internal/auth"
)

// healthPath answers whether the process is alive. What restarts it needs no token.
const healthPath = "/healthz"

// readyPath answers whether this replica can serve. What sends calls elsewhere, such as
// Kubernetes or a load balancer, has no token and needs the status only, not the reasons.
const readyPath = "/readyz"

// GuardHTTP lets only callers with a token read more than whether this replica is alive:
// the roles admin, operator and metrics read everything, the others /readyz.
func (r *Registry) GuardHTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == healthPath {
			next.ServeHTTP(w, q)
			return
		}
		if q.URL.Path == readyPath && q.Header.Get("Authorization") == "" {
			next.ServeHTTP(statusOnly{w}, q)
			return
		}
		p, err := r.ofHeader(q.Header.Get("Authorization"))
		refuse := func(why auth.Denial, reason string, code int) {
			if r.cfg.Denied != nil {
				r.cfg.Denied(p, q.RemoteAddr, q.URL.Path, why, reason)
			}
			http.Error(w, reason, code)
		}
		switch {
		case errors.Is(err, errTimeUnknown):
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case err != nil:
			w.Header().Set("WWW-Authenticate", "Bearer")
			why := auth.DenialCredential
			if q.Header.Get("Authorization") == "" {
				why = auth.DenialNoCredential
			}
			refuse(why, err.Error(), http.StatusUnauthorized)
		case p.Role != auth.Admin && p.Role != auth.Operator && p.Role != auth.Scraper && q.URL.Path != readyPath:
			refuse(auth.DenialRole, p.String()+" may not read this, which needs the role admin, operator or metrics", http.StatusForbidden)
		default:
			next.ServeHTTP(w, q)
		}
	})
}

// ofHeader returns the principal of an authorization header.
func (r *Registry) ofHeader(header string) (*auth.Principal, error) {
	if header == "" {
		return nil, &UnauthenticatedError{Reason: "this path needs a token with the role metrics: dtaskctl token create --role metrics, then the header Authorization: Bearer TOKEN"}
	}
	t, err := auth.ParseHeader(header)
	if err != nil {
		return nil, &UnauthenticatedError{Reason: err.Error()}
	}
	p, err := r.lookUpToken(t.Hash())
	if err == nil {
		err = r.expired(p)
		if err != nil && !r.cfg.TimeKnown() {
			err = errTimeUnknown
		}
	}
	if err == nil && r.cfg.Isolated() {
		err = &UnauthenticatedError{Reason: "this coordinator has heard of no leader for too long to know whether the token still counts"}
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteUse(t.Hash())
	return p, nil
}

// statusOnly is a response without a body.
type statusOnly struct{ http.ResponseWriter }

// Write implements http.ResponseWriter.
func (statusOnly) Write(p []byte) (int, error) { return len(p), nil }
