package web

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
	// scrapeLimit bounds one answer of /metrics; maxScrapes how many are made
	// at a time.
	scrapeLimit = 10 * time.Second
	maxScrapes  = 4
	// stopLimit is how long Serve waits for requests to end.
	stopLimit = time.Second
)

// Handler serves /metrics from registry, /healthz and /readyz. ready gives all
// reasons why this replica should get no calls now, joined with errors.Join; nil
// if there are none. It is called from many goroutines and must not block.
func Handler(registry prometheus.Gatherer, ready func() error, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            scrapeLog{log},
		ErrorHandling:       promhttp.ContinueOnError, // one broken collector must not hide the others
		Timeout:             scrapeLimit,
		MaxRequestsInFlight: maxScrapes,
	}))
	// Whoever can answer is alive; what it is worth is said by /readyz.
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, health{Status: "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			answer(w, http.StatusServiceUnavailable, health{Status: "not ready", Reasons: reasons(err)})
			return
		}
		answer(w, http.StatusOK, health{Status: "ready"})
	})
	return mux
}

// health is the body of /healthz and /readyz.
type health struct {
	Status  string   `json:"status"`
	Reasons []string `json:"reasons,omitempty"`
}

func answer(w http.ResponseWriter, code int, body health) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client has gone: nobody is left to tell
}

// reasons takes joined errors apart.
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

// scrapeLog logs what goes wrong with metrics.
type scrapeLog struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (l scrapeLog) Println(v ...any) {
	l.log.Warn("metrics are incomplete", "err", fmt.Sprint(v...))
}

// Serve serves h on l until ctx is done or l fails, and closes l. Requests have
// a second to end. It returns nil when ctx was done.
func Serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      scrapeLimit + 5*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // clients that break off
	}
	failed := make(chan error, 1) // size 1: read once the server is closed
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving http: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		_ = server.Close() // cut them off; the listener is closed already
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving http: %w", err)
	}
	return nil
}
