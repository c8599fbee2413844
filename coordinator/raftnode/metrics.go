package raftnode

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Collector returns the node's metrics, all named dtask_raft_…. The caller registers
// it, and unregisters it when it opens another node in the same process.
func (n *Node) Collector() prometheus.Collector {
	c := &collector{node: n}
	metric := func(name, help string, kind prometheus.ValueType, value func(Stats) float64) {
		c.metrics = append(c.metrics, metricDesc{
			desc: prometheus.NewDesc("dtask_raft_"+name, help, nil, nil), kind: kind, value: value,
		})
	}
	gauge := func(name, help string, value func(Stats) float64) { metric(name, help, prometheus.GaugeValue, value) }
	counter := func(name, help string, value func(Stats) float64) {
		metric(name+"_total", help, prometheus.CounterValue, value)
	}
	gauge("leading", "1 while this replica is the leader.", func(s Stats) float64 { return truth(s.State == "leader") })
	gauge("watching", "1 while a watch connection to the leader is up.", func(s Stats) float64 { return truth(s.Watching) })
	gauge("term", "Current term.", func(s Stats) float64 { return float64(s.Term) })
	gauge("last_index", "Index of the last entry of the log.", func(s Stats) float64 { return float64(s.LastIndex) })
	gauge("commit_index", "Highest index known to be committed.", func(s Stats) float64 { return float64(s.CommitIndex) })
	gauge("applied_index", "Index of the last entry that the state machine has applied.", func(s Stats) float64 { return float64(s.AppliedIndex) })
	gauge("pending_proposals", "Proposals without an answer.", func(s Stats) float64 { return float64(s.Pending) })
	gauge("snapshot_pending_bytes", "Bytes of log that the last snapshot does not cover.", func(s Stats) float64 { return float64(s.BytesToSnapshot) })
	gauge("disk_free_bytes", "Room on the disk of the data folder; 0 if it is not known.", func(s Stats) float64 { return float64(s.FreeSpace) })
	gauge("disk_low", "1 while that room is low and new jobs are refused.", func(s Stats) float64 { return truth(s.LowSpace) })
	counter("proposals", "Entries proposed here.", func(s Stats) float64 { return float64(s.Proposals) })
	counter("proposed_bytes", "Bytes of entries proposed here.", func(s Stats) float64 { return float64(s.ProposedBytes) })
	counter("syncs", "Writes of the log, each synced to the disk.", func(s Stats) float64 { return float64(s.Syncs) })
	counter("stored_entries", "Entries written to the log.", func(s Stats) float64 { return float64(s.StoredEntries) })
	counter("stored_bytes", "Bytes of entries written to the log.", func(s Stats) float64 { return float64(s.StoredBytes) })
	counter("store_seconds", "Time spent writing the log.", func(s Stats) float64 { return s.StoreTime.Seconds() })
	counter("snapshots", "Snapshots taken.", func(s Stats) float64 { return float64(s.Snapshots) })
	counter("snapshot_failures", "Snapshots that were tried and not taken.", func(s Stats) float64 { return float64(s.SnapshotFailures) })
	counter("reads", "Linearizable reads asked for.", func(s Stats) float64 { return float64(s.Reads) })
	counter("read_rounds", "Quorum rounds that confirmed reads.", func(s Stats) float64 { return float64(s.ReadRounds) })
	counter("watches_lost", "Watch connections to a leader that broke while it led.", func(s Stats) float64 { return float64(s.WatchesLost) })
	counter("quick_elections", "Elections that this replica started because the leader's process was gone.", func(s Stats) float64 { return float64(s.QuickElections) })
	counter("first_elections", "Elections that this replica started because a majority had begun and knew no leader.", func(s Stats) float64 { return float64(s.FirstElections) })
	counter("peers_refused", "Raft connections refused by either side.", func(s Stats) float64 { return float64(s.PeersRefused) })
	counter("connections_refused", "Connections of the shared port closed unserved.", func(s Stats) float64 { return float64(s.ConnsRefused) })
	return c
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

type metricDesc struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(Stats) float64
}

type collector struct {
	node    *Node
	metrics []metricDesc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	stats := c.node.Stats()
	for _, m := range c.metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(stats))
	}
}
