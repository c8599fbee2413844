// Package web is what a coordinator serves over plain HTTP: /metrics in the Prometheus
// format, /healthz and /readyz.
//
// It owns the paths. Metrics come from a registry, readiness from a function; package
// telemetry owns the server and its limits.
package web
