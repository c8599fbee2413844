package show

import (
	"time"

	"github.com/dtask/dtask/internal/document"
)

// CriticalPath adds the chain of tasks that determined the end of a job.
func (p *Printer) CriticalPath(d *document.CriticalPath) {
	ms := func(n int64) string { return Duration(time.Duration(n) * time.Millisecond) }
	p.Line("%s  %s  %s", p.bold("job "+Clean(d.Job)), Clean(d.Name), p.state(d.State))
	if len(d.Tasks) == 0 {
		p.Line("  no task of it has started, and none is ready")
		return
	}
	var waiting, retrying, running int64
	for i := range d.Tasks {
		waiting, retrying, running = waiting+d.Tasks[i].WaitingMS, retrying+d.Tasks[i].RetryingMS, running+d.Tasks[i].RunningMS
	}
	text := "critical path of " + Plural(len(d.Tasks), "task") + ": " + ms(d.TotalMS) + ", of which " + ms(waiting) + " waiting, "
	if retrying > 0 {
		text += ms(retrying) + " with attempts that failed, "
	}
	p.Line("  %s%s running", text, ms(running))
	p.Line("")
	shown := d.Tasks
	if len(shown) > MaxRows {
		shown = shown[len(shown)-MaxRows:]
		p.Line("the last %d of them:", MaxRows)
	}
	t := NewTable("TASK", "STATE", "WAITED", "RETRIED", "RAN", "WORKER")
	for i := range shown {
		x := &shown[i]
		retried, ran := "", ""
		if x.Retries > 0 {
			retried = ms(x.RetryingMS)
		}
		if x.StartedAt != nil {
			ran = ms(x.RunningMS)
		}
		t.Row(x.ID, x.State, ms(x.WaitingMS), retried, ran, x.Worker)
	}
	p.Table(t)
}
