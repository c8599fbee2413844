package web

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dtask/dtask/internal/telemetry"
)

// Handler serves /metrics from registry, /healthz and /readyz. ready returns all
// reasons why this replica should receive no calls, joined with errors.Join, or nil.
// It is called by many goroutines and must not block.
func Handler(registry prometheus.Gatherer, ready func() error, log *slog.Logger) http.Handler {
	mux := telemetry.Handler(registry, log)
	// A process that responds is alive; /readyz reports whether it can serve.
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			body := telemetry.Health{Status: "not ready", Reasons: reasons(err)}
			telemetry.Respond(w, http.StatusServiceUnavailable, body)
			return
		}
		telemetry.Respond(w, http.StatusOK, telemetry.Health{Status: "ready"})
	})
	return mux
}

// reasons splits joined errors.
func reasons(err error) []string {
	joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err)
	if !ok {
		return []string{err.Error()}
	}
	var list []string
	for _, e := range joined.Unwrap() {
		list = append(list, e.Error())
	}
	return list
}
