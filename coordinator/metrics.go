package coordinator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/scheduler"
)

// latencyBounds are the buckets of the latency histograms.
var latencyBounds = []time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
}

// registry has the metrics of this replica.
func (r *replica) registry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &metrics{r: r})
	return reg
}

// metrics reads counters where they are kept, at the time of a scrape.
type metrics struct{ r *replica }

func counter(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("dtask_"+name, help, labels, nil)
}

var (
	descLeader      = counter("leader", "1 while this replica leads.")
	descChanges     = counter("leader_terms_total", "Terms that this replica led.")
	descApplied     = counter("fsm_applied_index", "Log index of the last applied entry.")
	descEntries     = counter("sequencer_entries_total", "Log entries proposed.")
	descOps         = counter("sequencer_operations_total", "Operations in proposed entries.")
	descBytes       = counter("sequencer_entry_bytes_total", "Bytes of proposed entries.")
	descAssigned    = counter("tasks_assigned_total", "Assignments made.")
	descCompleted   = counter("tasks_completed_total", "Completions accepted.")
	descFailed      = counter("attempts_failed_total", "Failed attempts accepted.")
	descRequeued    = counter("attempts_requeued_total", "Attempts put back without burning a retry.")
	descLost        = counter("workers_lost_total", "Workers given up.")
	descSubmitted   = counter("jobs_submitted_total", "Jobs stored.")
	descReady       = counter("tasks_ready", "Ready tasks that wait for a worker.", "priority")
	descHeld        = counter("attempts_held", "Attempts that workers hold.")
	descWorkers     = counter("workers_attached", "Workers with a session.")
	descDisputed    = counter("replicas_disputed", "1 while no majority of the replicas agrees on the state.")
	descWaitSeconds = counter("task_wait_seconds", "From ready to sent to a worker; sampled under load.")
	descRunSeconds  = counter("task_run_seconds", "From begin to end of attempts that succeeded.")
)

// Describe implements prometheus.Collector: what Collect gives never changes,
// so that describing is collecting.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	t := m.r.totals
	s := t.Stats()
	for _, x := range []struct {
		d *prometheus.Desc
		v uint64
	}{
		{descEntries, s.Entries},
		{descOps, s.Operations},
		{descBytes, s.Bytes},
		{descAssigned, s.Assignments},
		{descCompleted, s.Completions},
		{descFailed, s.Failures},
		{descRequeued, s.Requeues},
		{descLost, s.WorkersLost},
		{descSubmitted, s.Submissions},
		{descChanges, m.r.leaderChanges.Load()},
	} {
		ch <- prometheus.MustNewConstMetric(x.d, prometheus.CounterValue, float64(x.v))
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	leads := m.r.term.Load() != nil
	gauge(descLeader, truth(leads))
	gauge(descDisputed, truth(m.r.disputed.Load()))
	gauge(descApplied, float64(m.r.machine.Index()))
	for p := scheduler.Low; p <= scheduler.Urgent; p++ {
		gauge(descReady, ifTrue(leads, float64(t.Depth[p].Load())), p.String())
	}
	gauge(descHeld, ifTrue(leads, float64(t.Held.Load())))
	gauge(descWorkers, ifTrue(leads, float64(t.Workers.Load())))
	histogram(ch, descWaitSeconds, t.Wait.Counts())
	histogram(ch, descRunSeconds, t.Run.Counts())
	if node := m.r.node.Load(); node != nil {
		collectNode(ch, node)
	}
}

func collectNode(ch chan<- prometheus.Metric, node *raftnode.Node) { node.Collector().Collect(ch) }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// ifTrue hides what a former leader still remembers.
func ifTrue(b bool, v float64) float64 { return v * truth(b) }

func histogram(ch chan<- prometheus.Metric, d *prometheus.Desc, c sequencer.Counts) {
	buckets := make(map[float64]uint64, len(latencyBounds))
	for i, n := range c.Bucketed(latencyBounds) {
		buckets[latencyBounds[i].Seconds()] = n
	}
	ch <- prometheus.MustNewConstHistogram(d, c.N, c.Sum.Seconds(), buckets)
}
