package show

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/internal/document"
)

// maxPlanRows is how many classes, tasks of a path, or changes the text of a plan has.
const maxPlanRows = 20

// Plan adds how a job would run.
func (p *Printer) Plan(d *document.JobPlan) {
	p.Line("%s  %s, at most %s in a level", p.bold("job "+Clean(d.Name)), Levels(d.Levels), Plural(d.Width, "task"))
	p.Line("%s with %s; %s in use now", Plural(d.Workers, "worker"), Plural(d.Slots, "slot"), Count(d.SlotsInUse))
	p.Line("")
	p.planClasses(d.Classes)
	p.Line("")
	p.Line("makespan       %s", p.makespan(d))
	p.Line("critical path  %s", planRange(d.CriticalPath.PlanRange))
	p.planPath(d)
	p.Line("slot-hours     %s", slotHours(d.SlotTime))
	for i, b := range d.Bounds {
		if i == 3 {
			break
		}
		title := "limited by"
		if i > 0 {
			title = "then by"
		}
		p.Line("%-14s %s: at least %s", title, Clean(boundText(b)), planRange(b.PlanRange))
	}
	p.unknown(d)
	p.planChanges(d)
}

// makespan says how long the job takes on an idle cluster.
func (p *Printer) makespan(d *document.JobPlan) string {
	if slices.ContainsFunc(d.Classes, func(c document.PlanClass) bool { return c.Workers == 0 }) {
		return "never: no worker fits some tasks"
	}
	if slices.ContainsFunc(d.Classes, func(c document.PlanClass) bool { return c.AtOnce == 0 }) {
		return "never: some tasks need more than a quota of the queue"
	}
	text := planRange(d.Makespan)
	if d.SlotsInUse > 0 {
		text += ", if all slots were free"
	}
	return text
}

func (p *Printer) planClasses(classes []document.PlanClass) {
	t := NewTable("WORKERS", "AT ONCE", "TASKS", "FIRST", "NEEDS")
	for _, c := range classes[:min(len(classes), maxPlanRows)] {
		t.Row(Count(c.Workers), Count(c.AtOnce), Count(c.Tasks), c.ID, classNeeds(&c))
	}
	p.Table(t)
	if more := len(classes) - maxPlanRows; more > 0 {
		p.Line("and %d more", more)
	}
	for _, c := range classes[:min(len(classes), maxPlanRows)] {
		if c.Reason != "" {
			p.Line("%s: %s", Clean(c.ID), Clean(c.Reason))
		}
	}
}

// amounts lists amounts of resources, in thousandths of their units; that of memory and disk is
// the byte.
func amounts(of map[string]int64) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		amount := strconv.FormatFloat(float64(of[name])/1000, 'f', -1, 64)
		if name == "memory" || name == "disk" {
			amount = Size(uint64(max(of[name], 0)) / 1000) //nolint:gosec // not negative
		}
		list = append(list, amount+" "+name)
	}
	return list
}

// classNeeds lists what the tasks of a class need of a worker beside a slot, and the limits that
// they use.
func classNeeds(c *document.PlanClass) string {
	list := []string{c.Type}
	if len(c.Alternatives) == 0 {
		list = append(list, amounts(c.Resources)...)
	} else {
		alternatives := []string{strings.Join(amounts(c.Resources), " and ")}
		for _, other := range c.Alternatives {
			alternatives = append(alternatives, strings.Join(amounts(other), " and "))
		}
		list = append(list, strings.Join(alternatives, " or "))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Require)) {
		list = append(list, name+"="+c.Require[name])
	}
	for _, name := range c.Secrets {
		list = append(list, "secret "+name)
	}
	for _, name := range c.Uses {
		list = append(list, "limit "+name)
	}
	return strings.Join(list, ", ")
}

func (p *Printer) planPath(d *document.JobPlan) {
	steps := d.CriticalPath.Tasks
	for _, s := range steps[:min(len(steps), maxPlanRows)] {
		from := "expected"
		if s.Samples > 0 {
			from = Plural(s.Samples, "run")
		} else if s.LowMS == nil {
			from = ""
		}
		p.Line("%s", strings.TrimRight(fmt.Sprintf("  %-20s %-16s %s", Clean(s.ID), planRange(s.PlanRange), from), " "))
	}
	if more := len(steps) - maxPlanRows; more > 0 {
		p.Line("  and %d more", more)
	}
}

// unknown says which run times are missing, and how to provide them.
func (p *Printer) unknown(d *document.JobPlan) {
	if len(d.Unknown) == 0 {
		return
	}
	names := d.Unknown[:min(len(d.Unknown), 10)]
	p.Line("")
	p.wrapped("", "  ", fmt.Sprintf("Unknown run times: %s. Write expect: 5m into these tasks, or run the job: 5 runs of a task under the same name and owner are enough.",
		someNames(names, uint32(len(d.Unknown))))) //nolint:gosec // at most 1,000,000
}

func (p *Printer) planChanges(d *document.JobPlan) {
	if d.LastJob == "" {
		return
	}
	p.Line("")
	if d.ChangesTotal == 0 {
		p.Line("no changes since job %s", Clean(d.LastJob))
		return
	}
	p.Line("%s since job %s:", Plural(d.ChangesTotal, "change"), Clean(d.LastJob))
	for _, c := range d.Changes[:min(len(d.Changes), maxPlanRows)] {
		what := "task " + c.ID
		if c.ID == "" {
			what = "the job"
		}
		if what += " " + c.Kind; len(c.Fields) > 0 {
			what += ": " + strings.Join(c.Fields, ", ")
		}
		p.Line("  %s", Clean(what))
	}
	if more := int(d.ChangesTotal) - maxPlanRows; more > 0 {
		p.Line("  and %d more", more)
	}
}

// boundText names a bound.
func boundText(b document.PlanBound) string {
	switch b.Code {
	case "critical_path":
		return "the critical path"
	case "max_parallel":
		return "max_parallel of " + b.Name
	case "slots":
		return "the slots of all workers"
	case "workers":
		return "the workers that fit " + b.Name
	case "resource":
		return "the resource " + b.Name
	case "queue":
		return "the running tasks that queue " + b.Name + " may have"
	case "limit":
		return "the limit " + b.Name
	case "queue_resource":
		return "the resource " + b.Name + " that its queue may hold"
	}
	return b.Code
}

// planRange formats a range: "2m–5m", "at least 2m" or "unknown".
func planRange(r document.PlanRange) string {
	ms := func(n int64) string { return Duration(time.Duration(min(n, maxShownMS)) * time.Millisecond) }
	switch {
	case r.LowMS == nil:
		return "unknown"
	case r.HighMS == nil:
		return "at least " + ms(*r.LowMS)
	case ms(*r.LowMS) == ms(*r.HighMS):
		return ms(*r.LowMS)
	}
	return ms(*r.LowMS) + "–" + ms(*r.HighMS)
}

// maxShownMS is the longest time that a Duration can have: 290 years.
const maxShownMS = int64(1<<63-1) / int64(time.Millisecond)

// slotHours formats how many slot-hours a range is.
func slotHours(r document.PlanRange) string {
	hours := func(n int64) string {
		return strconv.FormatFloat(float64(n)/float64(time.Hour.Milliseconds()), 'f', 2, 64)
	}
	switch {
	case r.LowMS == nil:
		return "unknown"
	case r.HighMS == nil:
		return "at least " + hours(*r.LowMS)
	case hours(*r.LowMS) == hours(*r.HighMS):
		return hours(*r.LowMS)
	}
	return hours(*r.LowMS) + "–" + hours(*r.HighMS)
}
