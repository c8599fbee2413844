package show

import (
	"fmt"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// eventFormat has a width for each column that suits most events: they are printed one by
// one.
const eventFormat = "%-10s  %-20s  %-16s  %s"

// Event adds a line with an event, after the headings with head.
func (p *Printer) Event(e *dtaskv1.Event, head bool) {
	if head {
		p.Line(eventFormat, "INDEX", "AT", "EVENT", "SUBJECT")
	}
	p.Line(eventFormat, fmt.Sprint(e.GetIndex()), absolute(e.GetAt()), Clean(e.GetKind()), eventSubject(e))
}

// eventSubject is what an event is about.
func eventSubject(e *dtaskv1.Event) string {
	switch {
	case e.GetTask() != "":
		text := fmt.Sprintf("%s/%s of %s, attempt %d", Clean(e.GetJob()), Clean(e.GetTask()), inNamespace(e), e.GetAttempt())
		if e.GetWorker() != "" {
			text += " on worker " + Clean(e.GetWorker())
		}
		return text
	case e.GetJob() != "":
		return fmt.Sprintf("%s, %s", Clean(e.GetJob()), inNamespace(e))
	case e.GetKind() == "cluster.leader":
		return fmt.Sprintf("%s, term %d", Clean(e.GetName()), e.GetNumber())
	case e.GetNumber() > 0:
		return fmt.Sprint(e.GetNumber())
	}
	return fmt.Sprintf("%s (%s)", Clean(e.GetName()), Clean(e.GetWorker()))
}

// inNamespace is the name of an event's job, with its namespace unless it is the default
// one.
func inNamespace(e *dtaskv1.Event) string {
	if ns := e.GetNamespace(); ns != "" && ns != "default" {
		return Clean(ns) + "/" + Clean(e.GetName())
	}
	return Clean(e.GetName())
}
