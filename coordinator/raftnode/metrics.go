package raftnode

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Collector returns the node's metrics, all named dtask_raft_…. The caller registers
// it, and unregisters it before it opens another node in the same process.
func (n *Node) Collector() prometheus.Collector { return collector{n} }

type collector struct{ node *Node }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c.node.Stats()
	for _, m := range []struct {
		name  string
		help  string
		kind  prometheus.ValueType
		value float64
	}{
		{"leading", "1 while Raft has this replica as leader; dtask_leader is 1 once it schedules.", prometheus.GaugeValue, boolValue(s.State == "leader")},
		{"watching", "1 while a watch connection to the leader is up.", prometheus.GaugeValue, boolValue(s.Watching)},
		{"term", "Current term.", prometheus.GaugeValue, float64(s.Term)},
		{"last_index", "Index of the last entry of the log.", prometheus.GaugeValue, float64(s.LastIndex)},
		{"commit_index", "Highest index known to be committed.", prometheus.GaugeValue, float64(s.CommitIndex)},
		{"applied_index", "Index of the last entry that the state machine has applied.", prometheus.GaugeValue, float64(s.AppliedIndex)},
		{"pending_proposals", "Proposals without an outcome.", prometheus.GaugeValue, float64(s.Pending)},
		{"snapshot_pending_bytes", "Bytes of log that the last snapshot does not cover.", prometheus.GaugeValue, float64(s.BytesToSnapshot)},
		{"disk_free_bytes", "Bytes available on the disk of the data directory; 0 if unknown.", prometheus.GaugeValue, float64(s.FreeSpace)},
		{"disk_low", "1 while free disk space is low and new jobs are refused.", prometheus.GaugeValue, boolValue(s.LowSpace)},
		{"proposals_total", "Entries proposed here.", prometheus.CounterValue, float64(s.Proposals)},
		{"proposed_bytes_total", "Bytes of entries proposed here.", prometheus.CounterValue, float64(s.ProposedBytes)},
		{"syncs_total", "Writes of the log, each synced to the disk.", prometheus.CounterValue, float64(s.Syncs)},
		{"stored_entries_total", "Entries written to the log.", prometheus.CounterValue, float64(s.StoredEntries)},
		{"stored_bytes_total", "Bytes of entries written to the log.", prometheus.CounterValue, float64(s.StoredBytes)},
		{"store_seconds_total", "Seconds spent writing the log.", prometheus.CounterValue, s.StoreTime.Seconds()},
		{"snapshots_total", "Snapshots taken.", prometheus.CounterValue, float64(s.Snapshots)},
		{"snapshot_failures_total", "Snapshots that failed.", prometheus.CounterValue, float64(s.SnapshotFailures)},
		{"reads_total", "Linearizable reads requested.", prometheus.CounterValue, float64(s.Reads)},
		{"read_rounds_total", "Quorum rounds that confirmed reads.", prometheus.CounterValue, float64(s.ReadRounds)},
		{"watches_lost_total", "Watch connections to a leader that broke while it led.", prometheus.CounterValue, float64(s.WatchesLost)},
		{"quick_elections_total", "Elections started here because the leader's process exited.", prometheus.CounterValue, float64(s.QuickElections)},
		{"quick_elections_abandoned_total", "Broken watch connections after which the leader was not reachable, and no voter stood for election within a heartbeat timeout.", prometheus.CounterValue, float64(s.QuickAbandoned)},
		{"round_trip_seconds", "Longest round trip to another voter, as last measured; 0 if unknown.", prometheus.GaugeValue, s.RoundTrip.Seconds()},
		{"first_elections_total", "Elections started here because a majority had started without a leader.", prometheus.CounterValue, float64(s.FirstElections)},
	} {
		ch <- prometheus.MustNewConstMetric(desc(m.name, m.help), m.kind, m.value)
	}
	refused := desc("peers_refused_total", "Raft, watch and kept connections that this replica refused, or that a peer refused to it, by reason; dtask_tls_handshakes_total counts peers without a valid certificate.", "reason")
	for reason, n := range s.PeersRefused {
		ch <- prometheus.MustNewConstMetric(refused, prometheus.CounterValue, float64(n), reason)
	}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("dtask_raft_"+name, help, labels, nil)
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
