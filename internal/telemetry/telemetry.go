package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// scrapeTimeout bounds one response of /metrics, and maxScrapes how many are made
	// concurrently.
	scrapeTimeout = 10 * time.Second
	maxScrapes    = 4
	// stopTimeout bounds the requests in flight when Serve stops.
	stopTimeout = time.Second
)

// healthPath answers whether the process is alive.
const healthPath = "/healthz"

// Handler serves /metrics from registry, and /healthz. The caller may add other paths.
func Handler(registry prometheus.Gatherer, log *slog.Logger) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: scrapeLog{log},
		// One broken collector must not hide the others.
		ErrorHandling:       promhttp.ContinueOnError,
		Timeout:             scrapeTimeout,
		MaxRequestsInFlight: maxScrapes,
	}))
	// A process that responds is alive.
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) {
		Respond(w, http.StatusOK, Health{Status: "ok"})
	})
	return mux
}

// Health is the body of /healthz, and of other paths about the state of a program.
type Health struct {
	Status  string   `json:"status"`
	Reasons []string `json:"reasons,omitempty"`
}

// Respond writes a response with a state.
func Respond(w http.ResponseWriter, code int, body Health) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // fails only if the client has disconnected
}

// A scrapeLog logs errors of metrics.
type scrapeLog struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (l scrapeLog) Println(v ...any) {
	l.log.Warn("metrics incomplete", "err", fmt.Sprint(v...))
}

// Serve serves h on l until ctx is done or l fails, and closes l. Requests in flight
// may finish within stopTimeout. It returns nil when ctx is done.
func Serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      scrapeTimeout + 5*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // disconnected clients
	}
	failed := make(chan error, 1) // size 1: one error
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving http: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		_ = server.Close() // the timeout has passed
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving http: %w", err)
	}
	return nil
}
