package coordinator

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/raftnode"
)

// historyName is the file of the history in the data folder.
const historyName = "history.db"

// openHistory opens the history. What is wrong with its file never keeps the
// replica from starting.
func (r *replica) openHistory() (err error) {
	r.history, err = history.Open(history.Config{
		Path: filepath.Join(r.cfg.DataDir, historyName), Logger: r.log,
		MaxJobs: r.cfg.HistoryJobs, MaxBytes: r.cfg.HistoryBytes, Sources: r.historySources,
	})
	if err == nil {
		r.machine.ArchiveTo(r.history)
	}
	return err
}

// runHistory runs the history until the returned function is called. It outlives Raft,
// which writes a last snapshot, and may wait for room in it.
func (r *replica) runHistory(ctx context.Context) (end func() error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1) // size 1: nobody may wait for it
	go func() { done <- r.history.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

// historySources gives the other members, those with short ways first: in the order of
// their ids, the leader last, since it has enough to do.
func (r *replica) historySources(context.Context) (sources []history.Source, all bool) {
	members := r.membership.Members()
	leader := ""
	if node := r.node.Load(); node != nil {
		leader, _ = node.Leader()
	}
	slices.SortFunc(members, func(a, b raftnode.Server) int {
		if (a.ID == leader) != (b.ID == leader) {
			if a.ID == leader {
				return 1
			}
			return -1
		}
		return strings.Compare(a.ID, b.ID)
	})
	for _, m := range members {
		if m.ID != r.id {
			sources = append(sources, historySource{r.peers, m.Address})
		}
	}
	// Who these are is known once somebody leads whom this replica follows.
	return sources, len(members) > 0 && leader != ""
}

var (
	descHistoryJobs       = counter("history_jobs", "Jobs in the history of this replica.")
	descHistoryBytes      = counter("history_bytes", "Bytes on disk that the history's jobs take, about.")
	descHistoryFile       = counter("history_file_bytes", "Length of the history's file: what it once needed; free room in it is used again.")
	descHistoryPending    = counter("history_pending_jobs", "Jobs that have left the state and are not in the history's file yet.")
	descHistoryLag        = counter("history_lag_seconds", "How long the oldest of these has waited.")
	descHistoryIncomplete = counter("history_incomplete", "1 while jobs are missing that other replicas may have: they are being fetched.")
	descHistoryExpired    = counter("history_expired_total", "Jobs dropped because of their age, or of too many jobs or bytes.")
	descHistoryFetched    = counter("history_fetched_total", "Jobs had from other replicas.")
	descHistoryDamaged    = counter("history_damaged_total", "Files of the history that were set aside because they were damaged.")
	descHistoryChecked    = counter("history_checked_bytes_total", "Bytes of the history that were looked at for damage.")
	descHistoryChecks     = counter("history_checks_total", "How often all of the history was looked at and is fine.")
	descHistoryFailures   = counter("history_write_failures_total", "Writes of the history that failed; they are repeated.")
)

func collectHistory(ch chan<- prometheus.Metric, s history.Stats) {
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	total := func(d *prometheus.Desc, v uint64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	gauge(descHistoryJobs, float64(s.Jobs))
	gauge(descHistoryBytes, float64(s.Bytes))
	gauge(descHistoryFile, float64(s.FileBytes))
	gauge(descHistoryPending, float64(s.Pending))
	gauge(descHistoryLag, s.Lag.Seconds())
	gauge(descHistoryIncomplete, truth(s.Incomplete))
	total(descHistoryExpired, s.Expired)
	total(descHistoryFetched, s.Fetched)
	total(descHistoryDamaged, s.Quarantined)
	total(descHistoryChecked, s.Scrubbed)
	total(descHistoryChecks, s.Scrubs)
	total(descHistoryFailures, s.WriteFailures)
}
