package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
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
	descStealsAsked = counter("steal_requests_total", "Attempts that loaded workers were asked to release because another worker had a free slot.")
	descSteals      = counter("steals_total", "Attempts that workers gave back when they were asked.")
	descLost        = counter("workers_down_total", "Workers marked down after a liveness timeout.")
	descSubmitted   = counter("jobs_submitted_total", "Jobs stored.")
	descRefused     = counter("submissions_refused_total", "Submissions refused because something was full, by what it was; clients repeat them.", "reason")
	descReady       = counter("tasks_ready", "Ready tasks that wait for a worker.", "priority")
	descHeld        = counter("attempts_held", "Attempts that workers hold.")
	descWorkers     = counter("workers_attached", "Workers with a session.")
	descClock       = counter("leader_clock_agrees", "1 while the leader's wall clock is like most members'; while it is not, nothing is forgotten because of its age.")
	descDisputed    = counter("replicas_disputed", "1 while no majority of the replicas agrees on the state.")
	descNotices     = counter("notifications_pending", "Notifications that wait for delivery to a webhook or command.")
	descTold        = counter("notifications_delivered_total", "Notifications delivered.")
	descGivenUp     = counter("notifications_failed_total", "Notifications dropped: rejected by the receiver, not delivered within 24 h, or displaced from a full queue.")
	descLetters     = counter("dead_letters", "Dead letters by the type of their tasks; types beyond the 50 most frequent are (others).", "type")
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
		{descStealsAsked, s.StealRequests},
		{descSteals, s.Steals},
		{descLost, s.WorkersDown},
		{descSubmitted, s.Submissions},
		{descTold, m.r.told.Delivered.Load()},
		{descGivenUp, m.r.told.Dropped.Load() + t.NotificationsDropped.Load()},
		{descChanges, m.r.leaderChanges.Load()},
	} {
		ch <- prometheus.MustNewConstMetric(x.d, prometheus.CounterValue, float64(x.v))
	}
	for limit, n := range m.r.api.Refused() {
		ch <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue, float64(n), limit)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	leads := m.r.term.Load() != nil
	gauge(descLeader, truth(leads))
	gauge(descClock, truth(m.r.clockAgrees()))
	gauge(descDisputed, truth(m.r.disputed.Load()))
	gauge(descApplied, float64(m.r.machine.Index()))
	for p := scheduler.Low; p <= scheduler.Urgent; p++ {
		gauge(descReady, ifTrue(leads, float64(t.Depth[p].Load())), p.String())
	}
	gauge(descHeld, ifTrue(leads, float64(t.Held.Load())))
	gauge(descWorkers, ifTrue(leads, float64(t.Workers.Load())))
	var waiting int
	var letters map[string]int
	m.r.machine.Read(func(st *fsm.State, _ uint64) { waiting, letters = st.NotificationCount(), st.DeadLettersByType() })
	gauge(descNotices, ifTrue(leads, float64(waiting)))
	for kind, n := range mostFrequent(letters, maxLetterTypes) {
		gauge(descLetters, ifTrue(leads, float64(n)), kind)
	}
	collectHistory(ch, m.r.history.Stats())
	histogram(ch, descWaitSeconds, t.Wait.Counts())
	histogram(ch, descRunSeconds, t.Run.Counts())
	if node := m.r.node.Load(); node != nil {
		collectNode(ch, node)
	}
}

// maxLetterTypes bounds the series of dead letters; otherTypes is a name that no
// type has.
const (
	maxLetterTypes = 50
	otherTypes     = "(others)"
)

// mostFrequent keeps the most frequent types and counts the others together. Those
// are always there, so that the registry knows the metric from the beginning.
func mostFrequent(counts map[string]int, most int) map[string]int {
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	out := map[string]int{otherTypes: 0}
	for i, kind := range kinds {
		if i >= most {
			kind = otherTypes
		}
		out[kind] += counts[kinds[i]]
	}
	return out
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
	for i, n := range c.Cumulative(latencyBounds) {
		buckets[latencyBounds[i].Seconds()] = n
	}
	ch <- prometheus.MustNewConstHistogram(d, c.N, c.Sum.Seconds(), buckets)
}
