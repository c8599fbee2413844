package telemetry

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A page of evil.example that is shown on this machine makes its own name resolve to
// 127.0.0.1, and asks for http://evil.example:7461/metrics.
func TestRequestsToOtherHostsAreRefused(t *testing.T) {
	t.Parallel()
	h := AllowHosts(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
		func() []string { return []string{"m1.example"} })
	for host, want := range map[string]int{
		"127.0.0.1:7461": http.StatusNoContent, "[::1]:7461": http.StatusNoContent, "[::1]": http.StatusNoContent, "10.0.0.1": http.StatusNoContent,
		"localhost:7461": http.StatusNoContent, "LOCALHOST": http.StatusNoContent, "m1.example:7461": http.StatusNoContent,
		"M1.Example.": http.StatusNoContent, "": http.StatusNoContent,
		"evil.example:7461": http.StatusMisdirectedRequest, "m1.example.evil.example": http.StatusMisdirectedRequest,
		"127.0.0.1.evil.example": http.StatusMisdirectedRequest, "localhost.evil.example:7461": http.StatusMisdirectedRequest,
	} {
		for path, want := range map[string]int{"/metrics": want, "/healthz": http.StatusNoContent} {
			q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
			q.Host = host
			w := httptest.NewRecorder()
			h.ServeHTTP(w, q)
			if w.Code != want {
				t.Errorf("%s%s: got %d, want %d", host, path, w.Code, want)
			}
			if w.Code == http.StatusMisdirectedRequest && !strings.Contains(w.Body.String(), "--http-hosts") {
				t.Errorf("%s: %s", host, w.Body)
			}
		}
	}
}
