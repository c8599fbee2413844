package show

import "github.com/dtask/dtask/internal/document"

// Bench adds the report of a benchmark.
func (p *Printer) Bench(r document.Bench) {
	p.Line("%s in %s, %s, %d-byte payloads", Plural(r.Tasks, "task"), Plural(r.Jobs, "job"),
		r.Shape, r.PayloadSize)
	if r.Rate > 0 {
		p.Line("requested rate        %s tasks per second", Count(int64(r.Rate)))
	}
	p.Line("submitted in          %.3fs", r.SubmitSeconds)
	p.Line("end to end            %.3fs", r.TotalSeconds)
	p.Line("tasks per second      %s", Count(int64(r.TasksPerSecond)))
	p.Line("jobs per second       %.1f", r.JobsPerSecond)
	p.Line("failed, retries       %s, %s", Count(r.TasksFailed), Count(r.Retries))
	p.distribution("submission", r.Submit)
	p.distribution("ready to running", r.ReadyToRunning)
	p.distribution("task, end to end", r.EndToEnd)
	if r.Entries != nil {
		p.Line("log entries           %s, %s bytes", Count(*r.Entries), Count(*r.LogBytes))
		p.Line("syncs, all replicas   %s", Count(*r.Syncs))
		p.Line("leader changes        %s", Count(*r.LeaderChanges))
	}
	if r.PerEntry != nil {
		p.Line("operations per entry  %.1f", *r.PerEntry)
	}
}

func (p *Printer) distribution(name string, d *document.Distribution) {
	if d != nil {
		p.Line("%-20s  p50 %.1f ms, p99 %.1f ms, max %.1f ms", name, d.P50, d.P99, d.Max)
	}
}
