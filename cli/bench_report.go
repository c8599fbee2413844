package cli

import (
	"bytes"
	"fmt"
	"io"
	"math"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
)

// benchReport is what `bench` prints. Counters are null if no coordinator told
// its own before and after; times are null if nothing was there to take them
// from.
type benchReport struct {
	Tasks          int      `json:"tasks"`
	Jobs           int      `json:"jobs"`
	Shape          string   `json:"shape"`
	PayloadSize    int      `json:"payload_size"` // bytes
	Rate           float64  `json:"rate"`         // tasks a second that were asked for; 0 = as many as were taken
	SubmitSeconds  float64  `json:"submit_seconds"`
	TotalSeconds   float64  `json:"end_to_end_seconds"`
	TasksPerSecond float64  `json:"tasks_per_second"`
	JobsPerSecond  float64  `json:"jobs_per_second"`
	TasksFailed    uint64   `json:"tasks_failed"`
	Retries        uint64   `json:"retries"`
	Submit         *spread  `json:"submit_ms"`           // one call
	Begin          *spread  `json:"ready_to_running_ms"` // of the tasks sampled
	EndToEnd       *spread  `json:"end_to_end_ms"`       // of the tasks sampled
	Sampled        int      `json:"tasks_sampled"`
	Entries        *uint64  `json:"entries"`
	Operations     *uint64  `json:"operations"`
	PerEntry       *float64 `json:"operations_per_entry"`
	LogBytes       *uint64  `json:"log_bytes"`
	Syncs          *uint64  `json:"syncs"`
	LeaderChanges  *uint64  `json:"leader_changes"`
}

// report puts the figures together.
func (l *load) report(before, after []client.ReplicaStats, times taskTimes) benchReport {
	seconds := max(l.ended.Seconds(), 1e-9)
	tasks := int(l.sent.Load())
	r := benchReport{
		Tasks: tasks, Jobs: len(l.jobs), Shape: string(l.flags.shape), PayloadSize: l.flags.payload, Rate: l.flags.rate,
		SubmitSeconds: round3(l.submitted.Seconds()), TotalSeconds: round3(l.ended.Seconds()),
		TasksPerSecond: round3(float64(tasks) / seconds), JobsPerSecond: round3(float64(len(l.jobs)) / seconds),
		TasksFailed: l.failed, Retries: l.retries,
		Submit: spreadOf(l.took), Begin: spreadOf(times.begin), EndToEnd: spreadOf(times.endToEnd), Sampled: times.tasks,
	}
	if len(before) == 0 || len(after) == 0 {
		return r
	}
	var entries, operations, written, syncs, changes uint64
	for _, now := range after {
		for _, then := range before {
			if then.Address != now.Address {
				continue
			}
			x, y := then.Stats, now.Stats
			entries += grown(x.GetEntries(), y.GetEntries())
			operations += grown(x.GetOperations(), y.GetOperations())
			written += grown(x.GetBytes(), y.GetBytes())
			syncs += grown(x.GetSyncs(), y.GetSyncs())
			changes = max(changes, grown(x.GetLeaderChanges(), y.GetLeaderChanges())) // all see the same ones
		}
	}
	r.Entries, r.Operations, r.LogBytes, r.Syncs, r.LeaderChanges = &entries, &operations, &written, &syncs, &changes
	if entries > 0 {
		per := round3(float64(operations) / float64(entries))
		r.PerEntry = &per
	}
	return r
}

// grown is by how much a counter grew; one that fell began anew with its
// process.
func grown(before, after uint64) uint64 {
	if after < before {
		return after
	}
	return after - before
}

func round3(x float64) float64 { return math.Round(x*1000) / 1000 }

// table shows the report to people.
func (r benchReport) table(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s in %s, %s, %d bytes of payload each\n", show.Plural(r.Tasks, "task"), show.Plural(r.Jobs, "job"), r.Shape, r.PayloadSize)
	if r.Rate > 0 {
		fmt.Fprintf(&b, "asked for             %s tasks per second\n", show.Count(int64(r.Rate)))
	}
	fmt.Fprintf(&b, "submitted in          %.3fs\n", r.SubmitSeconds)
	fmt.Fprintf(&b, "end to end            %.3fs\n", r.TotalSeconds)
	fmt.Fprintf(&b, "tasks per second      %s\n", show.Count(int64(r.TasksPerSecond)))
	fmt.Fprintf(&b, "jobs per second       %.1f\n", r.JobsPerSecond)
	fmt.Fprintf(&b, "failed, retries       %s, %s\n", show.Count(r.TasksFailed), show.Count(r.Retries))
	for _, line := range []struct {
		what string
		s    *spread
	}{{"submission", r.Submit}, {"ready to running", r.Begin}, {"task, end to end", r.EndToEnd}} {
		if line.s != nil {
			fmt.Fprintf(&b, "%-20s  p50 %.1f ms, p99 %.1f ms, max %.1f ms\n", line.what, line.s.P50, line.s.P99, line.s.Max)
		}
	}
	if r.Entries != nil {
		fmt.Fprintf(&b, "log entries           %s of %s bytes\n", show.Count(*r.Entries), show.Count(*r.LogBytes))
		fmt.Fprintf(&b, "syncs, all replicas   %s\n", show.Count(*r.Syncs))
		fmt.Fprintf(&b, "leader changes        %s\n", show.Count(*r.LeaderChanges))
	}
	if r.PerEntry != nil {
		fmt.Fprintf(&b, "operations per entry  %.1f\n", *r.PerEntry)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}
