// Package metrics shows the statistics of a worker to Prometheus. It is a package of its
// own so that programs that link package worker need no Prometheus library.
//
// It starts no goroutine and returns no error: it reads the statistics at each scrape.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dtask/dtask/worker"
)

// Collector returns the metrics of a worker, all named dtask_worker_…. stats is
// [worker.Worker.Stats]; it is called for each scrape. The caller registers the
// collector.
func Collector(stats func() worker.Stats) prometheus.Collector { return collector{stats} }

type collector struct{ stats func() worker.Stats }

// Describe implements prometheus.Collector. Collect always sends the same metrics.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector. A metric is one row.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c.stats()
	for _, m := range []struct {
		name, help string
		kind       prometheus.ValueType
		value      float64
	}{
		{"connected", "1 while the worker has a session with the leader.", prometheus.GaugeValue, truth(s.Connected)},
		{"slots", "Attempts that may run concurrently.", prometheus.GaugeValue, float64(s.Slots)},
		{"attempts_running", "Attempts that run.", prometheus.GaugeValue, float64(s.Running)},
		{"attempts_queued", "Attempts that wait for a slot or for permission to start.", prometheus.GaugeValue, float64(s.Queued)},
		{"outcomes_pending", "Outcomes of attempts that the leader has not acknowledged.", prometheus.GaugeValue, float64(s.Unsettled)},
		{"attempts_received_total", "Attempts assigned to this worker.", prometheus.CounterValue, float64(s.Received)},
		{
			"attempts_superseded_total", "Attempts of this worker whose tasks continued with a later attempt elsewhere.",
			prometheus.CounterValue, float64(s.Superseded),
		},
		{"sessions_total", "Sessions opened with leaders: each one after the first is a reconnect.", prometheus.CounterValue, float64(s.Sessions)},
		{"supervisors_started_total", "Supervisor processes of commands started.", prometheus.CounterValue, float64(s.SupervisorsStarted)},
		{
			"supervisors_lost_total", "Supervisor processes of commands that could not be started or ended unexpectedly.",
			prometheus.CounterValue, float64(s.SupervisorsLost),
		},
		{"output_bytes", "Approximate bytes on disk of the stored output of attempts.", prometheus.GaugeValue, float64(s.OutputBytes)},
		{
			"output_dropped_bytes_total", "Bytes of output of attempts that could not be stored.",
			prometheus.CounterValue, float64(s.OutputDroppedBytes),
		},
	} {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("dtask_worker_"+m.name, m.help, nil, nil), m.kind, m.value)
	}
	ended := prometheus.NewDesc(prometheus.BuildFQName("dtask", "worker", "attempts_ended_total"), "Attempts that ended on this worker, by outcome.", []string{"outcome"}, nil)
	for outcome, n := range map[string]uint64{
		"succeeded": s.Succeeded, "failed": s.Failed, "timed-out": s.TimedOut, "cancelled": s.Cancelled,
		"released": s.Released, "not-started": s.NotStarted,
	} {
		ch <- prometheus.MustNewConstMetric(ended, prometheus.CounterValue, float64(n), outcome)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
