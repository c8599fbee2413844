package access

import (
	"net/http"
	"net/http/httptest"
	"testing"
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
