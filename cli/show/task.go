package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// MaxRows is how many tasks or arrays a table shows; JSON has all.
const MaxRows = 100

// Tasks adds a table of tasks: those of tasks, of which there are as many as selected in
// all. If it has all, it sorts them by index.
func (p *Printer) Tasks(tasks []*dtaskv1.Task, selected int) {
	if len(tasks) == selected {
		tasks = slices.Clone(tasks)
		slices.SortFunc(tasks, func(a, b *dtaskv1.Task) int { return cmp.Compare(a.GetIndex(), b.GetIndex()) })
	}
	t := NewTable("TASK", "STATE", "ATTEMPT", "WORKER", "STARTED", "TOOK", "NOTE")
	for _, task := range tasks {
		note := cmp.Or(progressNote(task), task.GetPendingReason(), task.GetError(), affinityNote(task))
		if job := task.GetReusedJob(); job != "" {
			note = "result of " + job + "/" + task.GetReusedTask()
		}
		t.Row(task.GetId(), document.TaskState(task.GetState()), attemptNumber(task),
			task.GetWorker(), p.ago(task.GetStartedAt()), p.taskTook(task), note)
	}
	p.Table(t)
	p.more(selected-len(tasks), "task")
}

// more adds a line about rows that the table leaves out.
func (p *Printer) more(n int, noun string) {
	if n > 0 {
		p.Line("… and %s more; -o json shows all", Plural(n, noun))
	}
}

// progressNote is the progress that a running task reported.
func progressNote(t *dtaskv1.Task) string {
	if t.GetProgressPermille() == 0 || t.GetState() != dtaskv1.TaskState_TASK_STATE_RUNNING {
		return ""
	}
	return fmt.Sprintf("%d%% %s", t.GetProgressPermille()/10, t.GetProgressText())
}

// affinityNote is about the worker that the affinity of a task chooses, if the task is not
// there.
func affinityNote(t *dtaskv1.Task) string {
	switch key := t.GetKeyWorker(); {
	case t.GetSpilledFrom() != "":
		return fmt.Sprintf("spilled from %s (load %d.%02d)", t.GetSpilledFrom(), t.GetSpilledPermille()/1000, t.GetSpilledPermille()%1000/10)
	case key == "" || key == t.GetWorker() && t.GetState() != dtaskv1.TaskState_TASK_STATE_PENDING:
		return ""
	case t.GetState() == dtaskv1.TaskState_TASK_STATE_PENDING:
		return "its affinity chooses " + key
	default: // the fleet has changed, or another leader assigned it
		return "its affinity chooses " + key + " now"
	}
}

// taskTook is how long a task has run; empty if it waits for another attempt.
func (p *Printer) taskTook(t *dtaskv1.Task) string {
	switch t.GetState() { //nolint:exhaustive // states in which it waits
	case dtaskv1.TaskState_TASK_STATE_BLOCKED, dtaskv1.TaskState_TASK_STATE_SCHEDULED, dtaskv1.TaskState_TASK_STATE_PENDING:
		return ""
	}
	return p.took(t.GetStartedAt(), t.GetCompletedAt())
}

func attemptNumber(t *dtaskv1.Task) string {
	if t.GetAttempt() == 0 {
		return ""
	}
	return fmt.Sprint(t.GetAttempt())
}

// Arrays adds the progress of a job's arrays, if it has any.
func (p *Printer) Arrays(arrays []*dtaskv1.ArrayStatus) {
	if len(arrays) == 0 {
		return
	}
	t := NewTable("ARRAY", "TASKS", "PARALLEL", "TASKS BY STATE")
	for _, a := range arrays[:min(len(arrays), MaxRows)] {
		parallel := ""
		if a.GetMaxParallel() > 0 {
			parallel = Count(a.GetMaxParallel())
		}
		states := joinSorted(a.GetTasksByState(), ", ",
			func(state string, n uint32) string { return Count(n) + " " + state })
		if reason := a.GetPendingReason(); reason != "" {
			states += "; " + reason
		}
		t.Row(a.GetId(), Count(a.GetTasks()), parallel, states)
	}
	p.Table(t)
	p.more(len(arrays)-MaxRows, "array")
	p.Line("")
}

// Task adds a task with its attempts.
func (p *Printer) Task(job string, t *dtaskv1.Task) {
	p.Line("%s  %s", p.bold("task "+job+"/"+Clean(t.GetId())),
		p.state(document.TaskState(t.GetState())))
	p.field("type", t.GetType())
	p.field("attempt", attemptNumber(t))
	p.field("worker", t.GetWorker())
	p.field("affinity", affinityNote(t))
	p.field("started", p.ago(t.GetStartedAt()))
	if t.GetDueAt() == 0 {
		p.field("took", p.taskTook(t))
	} else {
		p.field("due", absolute(t.GetDueAt()))
	}
	p.field("pending", t.GetPendingReason())
	p.field("progress", progressNote(t))
	p.field("checkpoint", p.ago(t.GetCheckpointAt()))
	if history := t.GetHistory(); len(history) == 0 || history[len(history)-1].GetError() != t.GetError() {
		p.field("error", t.GetError()) // otherwise the last attempt shows it
	}
	p.history(t.GetHistory())
}

// history adds attempts with their errors, which may have several lines.
func (p *Printer) history(attempts []*dtaskv1.AttemptRecord) {
	for _, r := range attempts {
		head := fmt.Sprintf("\nattempt %d", r.GetNumber())
		if r.GetWorker() != "" {
			head += " on " + Clean(r.GetWorker())
		}
		if r.GetStartedAt() > 0 {
			head += "  " + absolute(r.GetStartedAt()) + "  took " + p.took(r.GetStartedAt(),
				r.GetEndedAt())
		} else {
			head += "  ended " + absolute(r.GetEndedAt())
		}
		p.Line("%s", head)
		for line := range strings.Lines(strings.TrimSpace(CleanText(r.GetError()))) {
			p.Line("  %s", strings.TrimRight(line, "\n"))
		}
	}
}

// Results adds the results of tasks. A single result is added as it is, byte for
// byte unless it is for a terminal.
func (p *Printer) Results(results []*dtaskv1.TaskResult, terminal bool) {
	if len(results) != 1 {
		t := NewTable("TASK", "STATE", "RESULT", "OUTPUT", "ERROR")
		for _, r := range results {
			t.Row(r.GetTask(), document.TaskState(r.GetState()), string(r.GetResult()), r.GetOutput(),
				r.GetError())
		}
		p.Table(t)
		return
	}
	text := cmp.Or(string(results[0].GetResult()), results[0].GetOutput())
	if terminal {
		text = CleanText(text)
	}
	if text != "" {
		p.Line("%s", strings.TrimSuffix(text, "\n"))
	}
}

// DeadLetters adds a table of dead letters.
func (p *Printer) DeadLetters(letters []*dtaskv1.DeadLetter) {
	t := NewTable("ID", "NAME", "TYPE", "ATTEMPTS", "DIED", "ERROR")
	for _, l := range letters {
		t.Row(document.DeadLetterID(l), l.GetJobName(), l.GetType(), fmt.Sprint(l.GetAttempts()),
			p.ago(l.GetDiedAt()), shorten(l.GetError()))
	}
	p.Table(t)
}

// shorten returns the first line of an error, cut to fit into a table.
func shorten(text string) string {
	const maxBytes = 100
	line, _, _ := strings.Cut(text, "\n")
	if len(line) > maxBytes {
		line = strings.ToValidUTF8(line[:maxBytes], "")
	}
	if len(line) < len(strings.TrimSpace(text)) {
		line += " …"
	}
	return line
}

// DeadLetter adds a dead letter with its payload and attempts.
func (p *Printer) DeadLetter(l *dtaskv1.DeadLetter) {
	p.Line("%s  %s", p.bold("task "+Clean(document.DeadLetterID(l))), p.state("dead"))
	p.field("job", l.GetJobName())
	p.field("owner", l.GetOwner())
	p.field("namespace", l.GetNamespace())
	p.field("type", l.GetType())
	p.field("died", p.ago(l.GetDiedAt()))
	p.field("attempts", Count(l.GetAttempts()))
	p.field("payload", string(l.GetPayload()))
	p.history(l.GetHistory())
}
