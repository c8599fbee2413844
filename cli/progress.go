package cli

import (
	"fmt"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/dtask/dtask/cli/show"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// lineInterval is the minimum time between progress lines if no bar is drawn.
const lineInterval = 10 * time.Second

// A step is a state of progress.
type step struct {
	done, total int64
	detail      string // 16 running, 1 scheduled
}

// jobStep returns the progress of a job.
func jobStep(j *dtaskv1.Job) step {
	return step{
		done: int64(j.GetTasksCompleted()), total: int64(j.GetTasksTotal()),
		detail: show.JobDetail(j),
	}
}

// A progress shows progress on standard error: as a bar on a terminal, and
// otherwise as a line after a change, at most once per lineInterval. It must be
// used by one goroutine, except for note.
type progress struct {
	out   *output
	label string
	bars  *mpb.Progress // nil if no bar is drawn
	bar   *mpb.Bar      // created by the first step

	mu       sync.Mutex // guards current and lines against the goroutines of the bar and of note
	current  step
	lastLine time.Time
	lastStep step
}

func (o *output) newProgress(label string) *progress {
	p := &progress{out: o, label: label}
	if isTerminal(o.err) && o.getenv("TERM") != "dumb" && !o.quiet {
		p.bars = mpb.New(mpb.WithOutput(o.err), mpb.WithWidth(40), mpb.WithAutoRefresh())
	}
	return p
}

// update shows a step.
func (p *progress) update(s step) {
	p.mu.Lock()
	p.current = s
	p.mu.Unlock()
	if p.bars == nil {
		p.line(s)
		return
	}
	if p.bar == nil {
		// The bar's total is never reached, because a complete bar stays on the
		// screen: end removes it.
		p.bar = p.bars.New(s.total+1, mpb.BarStyle().Lbound("").Filler("█").Tip("█").Padding("░").Rbound(""),
			mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return p.label + "  " })),
			mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return "  " + p.text() })),
		)
	}
	p.bar.SetCurrent(s.done)
}

func (p *progress) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := fmt.Sprintf("%s/%s", show.Count(p.current.done), show.Count(p.current.total))
	if p.current.detail != "" {
		text += "  " + p.current.detail
	}
	return text
}

func (p *progress) line(s step) {
	now := p.out.now()
	if s == p.lastStep || (!p.lastLine.IsZero() && now.Sub(p.lastLine) < lineInterval) {
		return
	}
	p.lastLine, p.lastStep = now, s
	p.write(p.label + ": " + p.text())
}

// write writes a line if no bar is drawn.
func (p *progress) write(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.note("%s", line)
}

// note writes a line unless -q is set: above the bar, if one is drawn. It may be called
// by another goroutine until end.
func (p *progress) note(text string) {
	if p.bars == nil {
		p.write(text)
		return
	}
	_, _ = fmt.Fprintln(p.bars, text) // as output.warn
}

// end removes the bar and waits for its goroutine.
func (p *progress) end() {
	if p.bars == nil {
		return
	}
	if p.bar != nil {
		p.bar.Abort(true)
	}
	p.bars.Wait()
}
