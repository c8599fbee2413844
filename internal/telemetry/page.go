package telemetry

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// WriteMetrics writes the metrics of a registry to w, in the text format of Prometheus. A
// broken collector doesn't hide the others.
func WriteMetrics(w io.Writer, registry prometheus.Gatherer) error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "/", http.NoBody)
	if err != nil {
		return fmt.Errorf("writing metrics: %w", err)
	}
	p := &page{w: w, header: http.Header{}, code: http.StatusOK}
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, DisableCompression: true}).ServeHTTP(p, request)
	if p.err == nil && p.code != http.StatusOK {
		p.err = fmt.Errorf("writing metrics: status %d", p.code)
	}
	return p.err
}

// page is the response to a request that came from no network.
type page struct {
	w      io.Writer
	header http.Header
	code   int
	err    error
}

// Header implements http.ResponseWriter.
func (p *page) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *page) WriteHeader(code int) { p.code = code }

// Write implements http.ResponseWriter.
func (p *page) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	if p.err == nil && err != nil {
		p.err = fmt.Errorf("writing metrics: %w", err)
	}
	return n, err
}
