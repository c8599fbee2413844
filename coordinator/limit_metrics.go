package coordinator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// collectLimits collects what counts towards the named limits that tasks use, and waits. The
// keys of a limit count together.
func (m metrics) collectLimits(ch chan<- prometheus.Metric) {
	var loads []scheduler.LimitLoad
	if counted := m.totals.Limits.Load(); counted != nil {
		loads = *counted
	}
	running, waiting := make(map[string]int), make(map[string]int)
	for _, l := range loads {
		name := fsm.LimitOf(l.Name)
		running[name] += int(l.Held)
		waiting[name] += l.Waiting
	}
	for _, x := range []struct {
		d      *prometheus.Desc
		counts map[string]int
	}{
		{desc("limit_tasks_running", "Tasks that count towards a limit; limits beyond the 50 with most count as (others).", "limit"), running},
		{desc("limit_tasks_ready", "Ready tasks that use a limit; limits beyond the 50 with most count as (others).", "limit"), waiting},
	} {
		for name, n := range mostFrequent(x.counts) {
			ch <- prometheus.MustNewConstMetric(x.d, prometheus.GaugeValue, float64(n), name)
		}
	}
}
