package coordinator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/telemetry"
)

// maxConnections bounds the connections of clients and workers; each worker that the cluster
// knows adds one, since workers connect with one each.
const maxConnections = 4096

// connectionLimits are those of the port for clients, workers and replicas.
func (r *replica) connectionLimits() transport.Limits {
	return transport.Limits{PerAddress: r.cfg.MaxConnsPerAddress, Total: func() (n int) {
		r.machine.Read(func(st *fsm.State, _ uint64) { n = maxConnections + st.WorkerCount() })
		return n
	}}
}

// connectionMetrics are the metrics of the ports.
type connectionMetrics struct {
	mux  *transport.Mux
	http *telemetry.LimitedListener // nil: no port for metrics
}

// Describe implements prometheus.Collector.
func (m connectionMetrics) Describe(ch chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(m, ch)
}

// Collect implements prometheus.Collector.
func (m connectionMetrics) Collect(ch chan<- prometheus.Metric) {
	collectGauges(ch, []gauge{{"connections", "Open connections of clients and workers to the port that they share with replicas.", float64(m.mux.Served())}})
	refused := m.mux.Refused()
	refused["http"] = m.http.Refused()
	d := desc("connections_refused_total",
		"Connections closed without being served, by reason: invalid, handshakes (others came during its handshake), address and total (the limits), http (those of --http).", "reason")
	for reason, n := range refused {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), reason)
	}
}
