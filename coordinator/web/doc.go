// Package web is what a coordinator serves over plain HTTP: /metrics in the
// format of Prometheus, /healthz and /readyz.
//
// It owns the HTTP server with its limits and nothing that is shown: metrics
// come from a registry, readiness from a function.
//
// Serve starts the goroutines of net/http and returns when they have ended. Its
// error is that of the listener.
package web
