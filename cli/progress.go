package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/dtask/dtask/cli/show"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// every is how often progress is printed at most where no bar can be drawn.
const every = 10 * time.Second

// A step is how far something is.
type step struct {
	done, total int64
	detail      string // 16 running, 1 retrying
}

// progressOf is how far a job is.
func progressOf(j *dtaskv1.Job) step {
	by := j.GetTasksByState()
	var words []string
	for _, s := range []struct{ state, word string }{
		{"running", "running"},
		{"assigned", "assigned"},
		{"scheduled", "retrying"},
		{"failed", "failed"},
		{"dead", "dead"},
		{"lost", "lost"},
		{"cancelled", "cancelled"},
	} {
		if n := by[s.state]; n > 0 {
			words = append(words, show.Count(n)+" "+s.word)
		}
	}
	return step{done: int64(j.GetTasksCompleted()), total: int64(j.GetTasksTotal()), detail: strings.Join(words, ", ")}
}

// A progress shows how far something is on standard error: as a bar on a
// terminal, otherwise in lines when something has changed, at most one every
// ten seconds. It belongs to one goroutine.
type progress struct {
	a     *app
	label string
	bars  *mpb.Progress // nil where no bar can be drawn
	bar   *mpb.Bar      // made with the first step

	mu   sync.Mutex // guards now against the bar's own goroutine
	now  step
	last time.Time // of the last line
	said step
}

func (a *app) newProgress(label string) *progress {
	p := &progress{a: a, label: label}
	if isTerminal(a.err) && a.getenv("TERM") != "dumb" && !a.quiet {
		p.bars = mpb.New(mpb.WithOutput(a.err), mpb.WithWidth(40), mpb.WithAutoRefresh())
	}
	return p
}

// update shows a new step.
func (p *progress) update(s step) {
	p.mu.Lock()
	p.now = s
	p.mu.Unlock()
	if p.bars == nil {
		p.line(s)
		return
	}
	if p.bar == nil {
		// A bar that never completes by itself: end takes it down.
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
	text := fmt.Sprintf("%s/%s", show.Count(p.now.done), show.Count(p.now.total))
	if p.now.detail != "" {
		text += "  " + p.now.detail
	}
	return text
}

func (p *progress) line(s step) {
	now := p.a.now()
	if s == p.said || (!p.last.IsZero() && now.Sub(p.last) < every) {
		return
	}
	p.last, p.said = now, s
	p.a.say("%s: %s", p.label, p.text())
}

// end takes the bar down; the summary says what it said.
func (p *progress) end() {
	if p.bars == nil {
		return
	}
	if p.bar != nil {
		p.bar.Abort(true)
	}
	p.bars.Wait()
}
