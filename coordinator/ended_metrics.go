package coordinator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dtask/dtask/fsm"
)

// collectEnds collects how many tasks and jobs have ended, which all replicas count alike. The
// caller has checked that this replica's state is current: to Prometheus, a counter that decreases
// has begun again at 0, so that it would add the whole value to the rate.
func (m metrics) collectEnds(ch chan<- prometheus.Metric) {
	var tasks, jobs struct{ completed, failed, cancelled uint64 }
	counts := false
	m.machine.Read(func(st *fsm.State, _ uint64) {
		counts = st.CountsEnds()
		tasks.completed, tasks.cancelled = st.EndedTasks(fsm.Completed), st.EndedTasks(fsm.Cancelled)
		tasks.failed = st.EndedTasks(fsm.Failed) + st.EndedTasks(fsm.Dead) + st.EndedTasks(fsm.Lost)
		jobs.completed, jobs.failed, jobs.cancelled = st.EndedJobs(fsm.JobCompleted), st.EndedJobs(fsm.JobFailed), st.EndedJobs(fsm.JobCancelled)
	})
	if !counts {
		return
	}
	const same = "; the same on every replica."
	for _, c := range []struct {
		name, help string
		value      uint64
	}{
		{"cluster_tasks_completed_total", "Tasks of the cluster that completed, those with a reused result too" + same, tasks.completed},
		{"cluster_tasks_failed_total", "Tasks of the cluster that ended as failed, dead or lost" + same, tasks.failed},
		{"cluster_tasks_cancelled_total", "Tasks of the cluster that ended as cancelled" + same, tasks.cancelled},
		{"cluster_jobs_completed_total", "Jobs of the cluster that completed" + same, jobs.completed},
		{"cluster_jobs_failed_total", "Jobs of the cluster that failed" + same, jobs.failed},
		{"cluster_jobs_cancelled_total", "Jobs of the cluster that ended as cancelled" + same, jobs.cancelled},
	} {
		ch <- prometheus.MustNewConstMetric(desc(c.name, c.help), prometheus.CounterValue, float64(c.value))
	}
}
