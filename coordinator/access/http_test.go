package access

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestReadingMetricsIsAUseOfAToken(t *testing.T) {
	t.Parallel()
	f := setup(t)
	made, _ := f.token("prometheus", "metrics", 0)
	if f.registry.lastUsed(made.Hash()) != 0 {
		t.Error("a new token was used")
	}
	q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	q.Header.Set("Authorization", made.Header())
	w := httptest.NewRecorder()
	f.registry.GuardHTTP(http.NotFoundHandler()).ServeHTTP(w, q)
	if w.Code != http.StatusNotFound || f.registry.lastUsed(made.Hash()) != f.clock() {
		t.Errorf("got status %d, last used at %d", w.Code, f.registry.lastUsed(made.Hash()))
	}
}

// A coordinator that does not know the time can't tell whether a token has expired.
func TestATokenIsNotCalledExpiredBeforeTheTimeIsKnown(t *testing.T) {
	t.Parallel()
	f := setup(t)
	short, _ := f.token("prometheus", "metrics", time.Second)
	f.pass(time.Minute)
	get := func() int {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
		q.Header.Set("Authorization", short.Header())
		w := httptest.NewRecorder()
		f.registry.GuardHTTP(http.NotFoundHandler()).ServeHTTP(w, q)
		return w.Code
	}
	f.noTime = true
	if code := get(); code != http.StatusServiceUnavailable {
		t.Errorf("before: got status %d", code)
	}
	f.noTime = false
	if code := get(); code != http.StatusUnauthorized {
		t.Errorf("afterwards: got status %d", code)
	}
}

// Kubernetes and load balancers have no token. They learn whether to send calls, and not why.
func TestOnlyTheStatusOfReadinessIsOpen(t *testing.T) {
	t.Parallel()
	f := setup(t)
	notReady := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no leader known", http.StatusServiceUnavailable)
	})
	reader, _ := f.token("ana", "reader", 0)
	for _, c := range []struct {
		path, token string
		code        int
		body        string
	}{
		{"/readyz", "", http.StatusServiceUnavailable, ""},
		{"/readyz", reader.Header(), http.StatusServiceUnavailable, "no leader known\n"},
		{"/metrics", "", http.StatusUnauthorized, ""},
	} {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, http.NoBody)
		if c.token != "" {
			q.Header.Set("Authorization", c.token)
		}
		w := httptest.NewRecorder()
		f.registry.GuardHTTP(notReady).ServeHTTP(w, q)
		if w.Code != c.code || c.path == "/readyz" && w.Body.String() != c.body {
			t.Errorf("%s with %q: got %d, %q, want %d, %q", c.path, c.token, w.Code, w.Body, c.code, c.body)
		}
	}
}
