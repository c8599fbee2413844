package show

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// explainWidth is the width of the text of Explanation, in characters. Longer words, such
// as names, are not broken.
const explainWidth = 100

// Explanation adds why a task is in its state, and what would start it.
func (p *Printer) Explanation(e *dtaskv1.ExplainResponse) {
	p.Line("%s  %s", p.bold("task "+e.GetJob()+"/"+Clean(e.GetTask())), p.state(document.TaskState(e.GetState())))
	for _, r := range e.GetReasons() {
		p.wrapped("  ", "  ", r.GetText())
	}
	if text := e.GetEstimate().GetText(); text != "" {
		p.wrapped("  ", "  ", text)
	}
	if len(e.GetWorkers()) > 0 {
		p.Line("")
	}
	for _, g := range e.GetWorkers() {
		p.wrapped("", "    ", fmt.Sprintf("%s: %s", Plural(g.GetWorkers(), "worker"), someNames(g.GetNames(), g.GetWorkers())))
		for _, o := range g.GetObstacles() {
			p.wrapped("  - ", "    ", o.GetText())
		}
		if len(g.GetObstacles()) == 0 {
			p.Line("  - has what the task needs")
		}
	}
	p.changes(e)
}

// JobExplanation adds why the first unfinished tasks of a job are in their states.
func (p *Printer) JobExplanation(e *dtaskv1.ExplainResponse) {
	p.Line("%s  %s", p.bold("job "+e.GetJob()), p.state(document.JobState(e.GetJobState())))
	for _, r := range e.GetReasons() {
		p.wrapped("  ", "  ", r.GetText())
	}
	for _, g := range e.GetTasks() {
		p.wrapped("", "    ", fmt.Sprintf("%s %s: %s", Plural(g.GetTasks(), "task"), document.TaskState(g.GetState()), someNames(g.GetNames(), g.GetTasks())))
		p.wrapped("  - ", "    ", g.GetReason().GetText())
	}
	if !e.GetComplete() {
		p.Line("\nThe job has more unfinished tasks.")
	}
}

// PendingHint adds how to see why tasks of a job wait for a worker, if any do.
func (p *Printer) PendingHint(job *dtaskv1.Job) {
	if n := job.GetTasksByState()["pending"]; n > 0 {
		p.Line("\n%s pending; dtaskctl explain %s shows why", Plural(n, "task"), job.GetId())
	}
}

// changes adds the single changes after which the task would start.
func (p *Printer) changes(e *dtaskv1.ExplainResponse) {
	reasons := e.GetReasons()
	waits := e.GetState() == dtaskv1.TaskState_TASK_STATE_PENDING && len(reasons) > 0 && reasons[0].GetCode() != "being_assigned" && reasons[0].GetCode() != "waits_for_key_worker"
	switch {
	case len(e.GetChanges()) > 0:
		p.Line("\nAny one of these changes would start it now:")
	case waits && e.GetComplete():
		p.Line("\nNo single change would start it now.")
	}
	for _, c := range e.GetChanges() {
		p.wrapped("  - ", "    ", c.GetText())
	}
	if waits && !e.GetComplete() {
		p.Line("\nNot all changes that would start it are known.")
	}
}

// someNames lists some of n names.
func someNames(names []string, n uint32) string {
	list := strings.Join(names, ", ")
	if more := int(n) - len(names); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// wrapped adds untrusted text in lines of explainWidth, the first of which begins with
// first, and the others with rest.
func (p *Printer) wrapped(first, rest, text string) {
	line, empty := first, true
	for word := range strings.FieldsSeq(Clean(text)) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > explainWidth {
			p.Line("%s", line)
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	p.Line("%s", line)
}
