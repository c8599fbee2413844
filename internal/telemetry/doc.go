// Package telemetry serves the metrics and the health of a program over plain HTTP:
// /metrics in the Prometheus format and /healthz.
//
// It owns the HTTP server, its limits, and the metrics that every program has. It knows
// no metric of a component: those come from collectors that the caller registers.
//
// Serve starts the goroutines of net/http and returns after they have finished. Its
// error is that of the listener.
package telemetry
