package coordinator

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// currentAlarms returns the alarms of this replica.
func (r *replica) currentAlarms() []*dtaskv1.Alarm {
	node := r.node.Load()
	r.alarms.Set(membership.AlarmDiskNearlyFull, node != nil && node.LowSpace(), "the disk of "+r.cfg.DataDir+
		" has less free space than --min-free-bytes: free some, or new jobs are refused while this replica leads")
	r.security.setAlarms(r.alarms, r.cfg.Wall())
	setIdentityAlarm(r.alarms, r.machine)
	r.setAuditAlarm()
	return r.alarms.Of(r.dir.serverID)
}

// setIdentityAlarm raises the alarm about the number of identities, or clears it.
func setIdentityAlarm(alarms *membership.Alarms, machine *fsm.Machine) {
	count, nearlyFull := 0, false
	machine.Read(func(st *fsm.State, _ uint64) { count, nearlyFull = st.IdentityCount(), st.IdentitiesNearlyFull() })
	alarms.Set(membership.AlarmIdentities, nearlyFull, fmt.Sprintf("the cluster has %d of at most %d identities; nobody can join when it is full: "+
		"revoke the join string that makes them (dtaskctl join-token list), and the identities that are not used (dtaskctl token list)", count, fsm.MaxIdentities))
}

// alarmMetrics is 1 for each alarm of this replica.
type alarmMetrics struct {
	current func() []*dtaskv1.Alarm
}

// Describe implements prometheus.Collector.
func (m alarmMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector. Every kind has a series, so that an alert can
// be written before the first alarm.
func (m alarmMetrics) Collect(ch chan<- prometheus.Metric) {
	raised := make(map[string]bool)
	for _, alarm := range m.current() {
		raised[alarm.GetKind()] = true
	}
	d := desc("alarms", "1 while this replica has an alarm that dtaskctl cluster status shows, by kind.", "kind")
	for _, kind := range membership.AlarmKinds() {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, truth(raised[kind]), kind)
	}
}
