// Package web serves plain HTTP on a coordinator: /metrics in the Prometheus format,
// /healthz and /readyz.
//
// It owns the HTTP server and its limits. Metrics come from a registry, readiness
// from a function.
//
// Serve starts the goroutines of net/http and returns after they have finished. Its
// error is that of the listener.
package web
