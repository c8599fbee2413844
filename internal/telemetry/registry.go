package telemetry

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry returns a registry with what every program has: metrics of the process, of
// the Go runtime, and the program's version.
func NewRegistry(version string) *prometheus.Registry {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "dtask", Name: "build_info", Help: "Always 1; the labels name the program.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	build.Set(1)
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), process, build)
	return registry
}
