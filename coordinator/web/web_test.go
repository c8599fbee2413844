package web

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dtask/dtask/internal/telemetry"
)

func handler(ready func() error) (http.Handler, *prometheus.Registry) {
	registry := prometheus.NewRegistry()
	return Handler(registry, ready, slog.New(slog.DiscardHandler)), registry
}

func get(t *testing.T, h http.Handler, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return w
}

func TestReadinessReportsItsReasons(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		err     error
		code    int
		reasons []string
	}{
		{"ready", nil, http.StatusOK, nil},
		{"one reason", errors.New("no leader"), http.StatusServiceUnavailable, []string{"no leader"}},
		{"two reasons", errors.Join(errors.New("no leader"), errors.New("behind")), http.StatusServiceUnavailable, []string{"no leader", "behind"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, _ := handler(func() error { return c.err })
			w := get(t, h, http.MethodGet, "/readyz")
			var got telemetry.Health
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if w.Code != c.code || !slices.Equal(got.Reasons, c.reasons) {
				t.Errorf("got %d %v, want %d %v", w.Code, got.Reasons, c.code, c.reasons)
			}
			if w := get(t, h, http.MethodGet, "/healthz"); w.Code != http.StatusOK {
				t.Errorf("/healthz: got %d, want 200", w.Code)
			}
		})
	}
}

func TestMetricsComeFromTheRegistry(t *testing.T) {
	t.Parallel()
	h, registry := handler(func() error { return nil })
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "dtask_test_total", Help: "For the test."})
	registry.MustRegister(c)
	c.Add(3)
	if w := get(t, h, http.MethodGet, "/metrics"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "dtask_test_total 3") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestOtherPathsAreNotFound(t *testing.T) {
	t.Parallel()
	h, _ := handler(func() error { return nil })
	for path, code := range map[string]int{"/": 404, "/debug/pprof/": 404, "/metrics/x": 404} {
		if w := get(t, h, http.MethodGet, path); w.Code != code {
			t.Errorf("%s: got %d, want %d", path, w.Code, code)
		}
	}
	if w := get(t, h, http.MethodPost, "/readyz"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: got %d", w.Code)
	}
}
