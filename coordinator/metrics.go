package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/notify"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/telemetry"
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
	reg := telemetry.NewRegistry(r.cfg.Version)
	if r.security != nil {
		reg.MustRegister(securityMetrics{r.security, r.mux.Handshakes})
	}
	if r.audit != nil {
		reg.MustRegister(auditMetrics{r.audit})
	}
	reg.MustRegister(alarmMetrics{r.currentAlarms}, connectionMetrics{r.mux, r.httpListener}, metrics{
		totals: r.totals, leadership: r.leadership, clock: r.clock, notifications: &r.notifier.totals,
		machine: r.machine, history: r.history, refused: r.api.Refused, denied: r.api.Denials, node: &r.node, wall: r.cfg.Wall,
	})
	return reg
}

// metrics reads counters where they are kept, at the time of a scrape. A metric is one
// row in Collect.
type metrics struct {
	totals        *sequencer.Totals
	leadership    *leadership
	clock         *clockMonitor
	notifications *notify.Totals
	machine       *fsm.Machine
	history       *history.History
	refused       func() map[string]uint64 // by reason
	denied        func() map[string]uint64 // by reason
	node          *atomic.Pointer[raftnode.Node]
	wall          func() time.Time
}

// Describe implements prometheus.Collector. What only a leader knows is not described: a
// replica that doesn't lead has no such series.
func (m metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("dtask_"+name, help, labels, nil)
}

// Collect implements prometheus.Collector.
func (m metrics) Collect(ch chan<- prometheus.Metric) {
	t, s, h := m.totals, m.totals.Stats(), m.history.Stats()
	for _, c := range []struct {
		name, help string
		value      uint64
	}{
		{"leader_terms_total", "Terms that this replica led.", m.leadership.terms.Load()},
		{"sequencer_entries_total", "Log entries proposed.", s.Entries},
		{"sequencer_operations_total", "Operations in proposed log entries.", s.Operations},
		{"sequencer_entry_bytes_total", "Bytes of proposed log entries.", s.Bytes},
		{"tasks_assigned_total", "Assignments made.", s.Assignments},
		{"tasks_completed_total", "Completions accepted.", s.Completions},
		{
			"attempts_requeued_total",
			"Attempts requeued although they neither failed nor were lost: released, drained, stolen, preempted or not begun.", s.Requeues,
		},
		{"attempts_lost_total", "Attempts requeued because their worker was marked down while it ran them.", s.Losses},
		{
			"steal_requests_total",
			"Attempts that loaded workers were asked to release because another worker had a free slot.",
			s.StealRequests,
		},
		{"steals_total", "Attempts that workers released on request.", s.Steals},
		{"preemptions_total", "Attempts of preemptible tasks that were stopped so that urgent tasks start.", t.Preemptions.Load()},
		{"workers_down_total", "Workers marked down after a liveness timeout.", s.WorkersDown},
		{"jobs_submitted_total", "Jobs stored.", s.Submissions},
		{"jobs_expired_total", "Jobs cancelled because none of their tasks started in time.", t.JobsExpired.Load()},
		{"schedule_runs_total", "Ticks of schedules that started a job; runs by hand don't count.", t.ScheduledRuns.Load()},
		{"schedule_ticks_skipped_total", "Ticks of schedules skipped because an earlier run had not ended.", t.TicksSkipped.Load()},
		{
			"schedule_ticks_missed_total",
			"Ticks of schedules that were missed and don't run later; of those that end together, at most 1,000.", t.TicksMissed.Load(),
		},
		{
			"notifications_delivered_total",
			"Notifications delivered.", m.notifications.Delivered.Load(),
		},
		{
			"notifications_failed_total",
			"Notifications dropped: rejected by the receiver, to a private address, not delivered within 24 h, or displaced from a full queue.",
			m.notifications.Dropped.Load() + t.NotificationsDropped.Load(),
		},
		{
			"history_expired_total",
			"Jobs deleted from the history because of a limit on age, number or bytes.", h.Expired,
		},
		{"history_fetched_total", "Jobs fetched from other replicas.", h.Fetched},
		{
			"history_quarantined_total",
			"History files quarantined because they were damaged.", h.Quarantined,
		},
		{"history_checked_bytes_total", "Bytes of the history checked for damage.", h.Scrubbed},
		{"history_checks_total", "Complete checks of the history without damage.", h.Scrubs},
		{
			"history_write_failures_total",
			"Failed writes of the history; they are repeated.", h.WriteFailures,
		},
	} {
		ch <- prometheus.MustNewConstMetric(desc(c.name, c.help), prometheus.CounterValue,
			float64(c.value))
	}
	refused := desc("submissions_refused_total", "Submissions refused because of a limit, by reason; clients repeat them.", "reason")
	for reason, n := range m.refused() {
		ch <- prometheus.MustNewConstMetric(refused, prometheus.CounterValue, float64(n), reason)
	}
	denied := desc("calls_denied_total", "Calls refused because of their caller, by reason: no_credential, credential (unknown, expired or revoked), join_string, role, scope (a namespace, a job's owner, a worker's name) and other.", "reason")
	for reason, n := range m.denied() {
		ch <- prometheus.MustNewConstMetric(denied, prometheus.CounterValue, float64(n), reason)
	}
	failed := desc("attempts_failed_total", "Failed attempts accepted, by task type and reason; types beyond the first 50 count as "+sequencer.OtherTypes+".", "type", "reason")
	for k, n := range t.Failed.Counts() {
		ch <- prometheus.MustNewConstMetric(failed, prometheus.CounterValue, float64(n), k.Type, k.Reason)
	}
	leads := m.leadership.term.Load() != nil
	level, clusterID, clusterName := fsm.Level(0), "", ""
	var schedule fsm.BackupSchedule
	var backup fsm.BackupRun
	m.machine.Read(func(st *fsm.State, _ uint64) {
		level, clusterID, clusterName = st.Level(), st.ClusterID(), st.ClusterName()
		schedule, _ = st.BackupSchedule()
		backup, _ = st.LastBackup()
	})
	if clusterID != "" {
		ch <- prometheus.MustNewConstMetric(desc("cluster_info", "1, with the ID of the cluster, and the name that operators gave it.", "cluster_id", "name"),
			prometheus.GaugeValue, 1, clusterID, clusterName)
	}
	collectGauges(ch, []gauge{
		{
			"backup_last_success_timestamp_seconds",
			"Unix time of the last backup of the schedule that was written and read back; 0 = none. The same on every replica.",
			time.Duration(backup.AtMS * int64(time.Millisecond)).Seconds(),
		},
		{
			"backup_interval_seconds", "Seconds between backups of the schedule; 0 = no schedule.",
			time.Duration(schedule.EveryMS * int64(time.Millisecond)).Seconds(),
		},
		{"leader", "1 while this replica leads.", truth(leads)},
		{"feature_level", "Feature level of the cluster, as far as this replica has applied the log.", float64(level)},
	})
	collectGauges(ch, historyGauges(&h))
	histogram(ch, desc("task_wait_seconds", "Seconds from ready to sent to a worker; sampled under load."), t.Wait.Counts())
	histogram(ch, desc("task_run_seconds", "Seconds from start to end of successful attempts."), t.Run.Counts())
	histogram(ch, desc("schedule_delay_seconds", "Seconds from the start of a tick, jitter included, to the decision to run it."), t.FireDelay.Counts())
	if m.leadership.established() { // else what is counted may be of an earlier term
		m.collectLeader(ch)
	}
	if node := m.node.Load(); node != nil {
		node.Collector().Collect(ch)
		if node.Current() {
			m.collectEnds(ch)
		}
	}
}

// historyGauges are the gauges of the history.
func historyGauges(h *history.Stats) []gauge {
	return []gauge{
		{"history_jobs", "Jobs in the history of this replica.", float64(h.Jobs + h.ToImport)},
		{
			"history_import_jobs",
			"Jobs of the backup that the cluster was restored from that are not in the history file yet; they can be read.",
			float64(h.ToImport),
		},
		{
			"history_bytes",
			"Approximate bytes on disk of the jobs in the history.", float64(h.Bytes),
		},
		{
			"history_file_bytes",
			"Size of the history file in bytes; free space in it is reused.", float64(h.FileBytes),
		},
		{
			"history_pending_jobs",
			"Jobs that have left the state and are not in the history file yet.",
			float64(h.Pending),
		},
		{"history_lag_seconds", "Age of the oldest pending job in seconds.", h.Lag.Seconds()},
		{
			"history_incomplete",
			"1 while jobs are being fetched that other replicas may have.", truth(h.Incomplete),
		},
	}
}

// A gauge is a metric without labels.
type gauge struct {
	name, help string
	value      float64
}

func collectGauges(ch chan<- prometheus.Metric, list []gauge) {
	for _, g := range list {
		ch <- prometheus.MustNewConstMetric(desc(g.name, g.help), prometheus.GaugeValue, g.value)
	}
}

// collectLeader collects what only the leader knows. A former leader still remembers
// some of it, and a follower would show zeros, which falsify minima and alerts.
func (m metrics) collectLeader(ch chan<- prometheus.Metric) {
	t := m.totals
	notifications, schedules, deadLetters := 0, 0, map[string]int(nil)
	m.machine.Read(func(st *fsm.State, _ uint64) {
		notifications, schedules, deadLetters = st.NotificationCount(), st.ScheduleCount(), st.DeadLettersByType()
	})
	collectGauges(ch, []gauge{
		{
			"leader_clock_agrees",
			"1 while the leader's wall clock agrees with a majority of the members; otherwise nothing expires by age, and no schedule fires.",
			truth(m.clock.agrees()),
		},
		{"attempts_held", "Attempts assigned to workers.", float64(t.Held.Load())},
		{
			"attempts_orphaned",
			"Attempts on workers without a session; requeued when their worker is marked down.",
			float64(t.Orphaned.Load()),
		},
		{"workers_attached", "Workers with a session.", float64(t.Workers.Load())},
		{"tasks_unplaceable", "Ready tasks that no worker could run, even if all were idle.", float64(t.Unplaceable.Load())},
		{
			"tasks_ready_oldest_seconds",
			"Seconds for which the oldest ready task has waited since it became ready in this term; sampled under load.",
			time.Duration(t.OldestWait.Load()).Seconds(),
		},
		{
			"slots_wanted",
			"Slots that attempts on workers and ready tasks need, one each; tasks that no worker could run are included.",
			slotsWanted(t),
		},
		{"schedules", "Schedules, paused ones too.", float64(schedules)},
		{"notifications_pending", "Notifications waiting for delivery to a webhook or command.", float64(notifications)},
	})
	m.collectStates(ch)
	ready := desc("tasks_ready", "Ready tasks waiting for a worker, by priority.", "priority")
	for p := scheduler.Low; p <= scheduler.Urgent; p++ {
		ch <- prometheus.MustNewConstMetric(ready, prometheus.GaugeValue, float64(t.Depth[p].Load()), p.String())
	}
	m.collectQueues(ch)
	m.collectLimits(ch)
	letters := desc("dead_letters", "Dead letters by task type; types beyond the 50 most frequent count as (others).", "type")
	for kind, n := range mostFrequent(deadLetters) {
		ch <- prometheus.MustNewConstMetric(letters, prometheus.GaugeValue, float64(n), kind)
	}
}

// collectQueues collects the loads of the queues that are set, and of the default one.
func (m metrics) collectQueues(ch chan<- prometheus.Metric) {
	loads := map[string]sequencer.QueueLoad{}
	if counted := m.totals.Queues.Load(); counted != nil {
		loads = *counted
	}
	names := []string{fsm.DefaultQueue}
	m.machine.Read(func(st *fsm.State, _ uint64) {
		for q := range st.Queues() {
			if q.Name != fsm.DefaultQueue {
				names = append(names, q.Name)
			}
		}
	})
	waiting := desc("queue_tasks_ready", "Ready tasks waiting for a worker, by queue.", "queue")
	running := desc("queue_tasks_running", "Tasks assigned to workers, by queue.", "queue")
	oldest := desc("queue_oldest_wait_seconds", "Seconds for which the oldest ready task of a queue has waited; sampled under load.", "queue")
	waits := desc("queue_wait_seconds", "Seconds from ready to assigned of the last tasks of a queue, sampled under load, by quantile.", "queue", "quantile")
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, name := range names {
		l := loads[name]
		gauge(waiting, float64(l.Waiting), name)
		gauge(running, float64(l.Running), name)
		gauge(oldest, l.Oldest.Seconds(), name)
		gauge(waits, l.P50.Seconds(), name, "0.5")
		gauge(waits, l.P99.Seconds(), name, "0.99")
	}
}

// slotsWanted is how many slots would run all attempts and ready tasks at once. Tasks that no
// worker could run are included: a pool of workers that was scaled to none would otherwise
// never get the first one.
func slotsWanted(t *sequencer.Totals) float64 {
	n := t.Held.Load()
	for p := range t.Depth {
		n += t.Depth[p].Load()
	}
	return float64(n)
}

// collectStates counts the jobs of the replicated state, and their tasks, by state, and the jobs
// that wait by what they wait for. It visits all jobs, of a fork, so that nothing waits for it.
func (m metrics) collectStates(ch chan<- prometheus.Metric) {
	st, _ := m.machine.Fork()
	jobs, tasks := st.CountByState()
	for state, n := range jobs {
		ch <- prometheus.MustNewConstMetric(desc("jobs", "Jobs by state; finished ones leave for the history.", "state"),
			prometheus.GaugeValue, float64(n), state.String())
	}
	waiting := st.CountWaiting(m.wall().UnixMilli())
	for what, n := range map[string]uint64{"jobs": waiting.OtherJobs, "start_time": waiting.StartTime, "concurrency": waiting.Concurrency} {
		ch <- prometheus.MustNewConstMetric(desc("jobs_waiting", "Jobs that wait for other jobs (jobs), for their start_time, or because of their concurrency key.", "for"),
			prometheus.GaugeValue, float64(n), what)
	}
	for state, n := range tasks {
		ch <- prometheus.MustNewConstMetric(desc("tasks", "Tasks of these jobs by state; those that run are assigned.", "state"),
			prometheus.GaugeValue, float64(n), state.String())
	}
}

// maxSeries bounds the series of dead letters, and those of limits.
const maxSeries = 50

// mostFrequent keeps the most frequent names and adds up the others as OtherTypes, which
// is always present, so that the registry has the metric from the start.
func mostFrequent(counts map[string]int) map[string]int {
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	out := map[string]int{sequencer.OtherTypes: 0}
	for i, kind := range kinds {
		if i >= maxSeries {
			kind = sequencer.OtherTypes
		}
		out[kind] += counts[kinds[i]]
	}
	return out
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func histogram(ch chan<- prometheus.Metric, d *prometheus.Desc, c sequencer.Counts) {
	buckets := make(map[float64]uint64, len(latencyBounds))
	for i, n := range c.Cumulative(latencyBounds) {
		buckets[latencyBounds[i].Seconds()] = n
	}
	ch <- prometheus.MustNewConstHistogram(d, c.N, c.Sum.Seconds(), buckets)
}
