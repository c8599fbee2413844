package ledger

import (
	"fmt"
	"strings"
	"time"
)

// A Job is a job as the cluster acknowledged and shows it.
type Job struct {
	ID        string
	State     string
	Completed int // tasks_completed
	Tasks     []Task
}

// A Task is a task as the cluster shows it, with what it was submitted with.
type Task struct {
	ID      string
	After   []string // dependencies
	State   string
	Attempt int
	Worker  string
}

// completed tells whether the task ended well.
func (t Task) completed() bool { return t.State == "completed" || t.State == "aggregated" }

// Harm is a time in which a worker could not do its work: it was killed, stopped or
// disconnected.
type Harm struct {
	Worker    string        `json:"worker,omitempty"`    // "": every worker
	Execution string        `json:"execution,omitempty"` // the only one that was harmed; "": all of the worker
	From      time.Duration `json:"from"`
	Until     time.Duration `json:"until,omitempty"` // 0: forever
	Cause     string        `json:"cause,omitempty"` // Stopped, or any other text for readers
}

// Stopped is the cause of a harm to a worker whose process is stopped: it can't end what it
// executes.
const Stopped = "SIGSTOP"

// Harmed reports whether one of the harms explains that another attempt of a run's task
// began at a time, possibly before the run itself.
func Harmed(harms []Harm, r *Run, next time.Duration) bool {
	for _, h := range harms {
		if (h.Worker == "" || h.Worker == r.Worker) && (h.Execution == "" || h.Execution == r.Execution) &&
			h.From <= next && (h.Until == 0 || h.Until >= min(r.Start, next)) {
			return true
		}
	}
	return false
}

// FaultKind names a broken promise.
type FaultKind string

// The broken promises.
const (
	Lost       FaultKind = "lost"       // acknowledged, and not done
	Duplicated FaultKind = "duplicated" // one attempt executed twice, or more completions accepted than there are tasks
	Restarted  FaultKind = "restarted"  // begun again though the earlier worker was well and nothing had failed
	Disorder   FaultKind = "disorder"   // begun before what it depends on had ended
	Backwards  FaultKind = "backwards"  // a later start has no higher attempt and token
	Phantom    FaultKind = "phantom"    // executed, and belongs to no acknowledged job
)

// A Fault is one broken promise.
type Fault struct {
	Kind      FaultKind
	Job, Task string
	Text      string
}

// String is the fault as one line.
func (f Fault) String() string { return fmt.Sprintf("%s: %s/%s: %s", f.Kind, f.Job, f.Task, f.Text) }

// Check returns every promise that was broken. Jobs are all that were
// acknowledged, read after they ended, and were all meant to complete. A task
// whose command ends with another exit code than 0 may be started again.
func Check(lines []Line, jobs []Job, harms []Harm) []Fault {
	c := checker{harms: harms, runs: make(map[place][]Run)}
	for _, r := range Runs(lines) {
		c.runs[place{r.Job, r.Task}] = append(c.runs[place{r.Job, r.Task}], r)
	}
	known := make(map[place]bool)
	for _, job := range jobs {
		for _, task := range job.Tasks {
			known[place{job.ID, task.ID}] = true
		}
		c.job(job)
	}
	for _, r := range Runs(lines) {
		if at := (place{r.Job, r.Task}); !known[at] {
			c.add(Phantom, at, "attempt %d ran on %s, and no acknowledged job has it", r.Attempt, r.Worker)
			known[at] = true // said once
		}
	}
	return c.faults
}

// place is where a run belongs.
type place struct{ job, task string }

type checker struct {
	runs   map[place][]Run // in order of their starts
	harms  []Harm
	faults []Fault
}

func (c *checker) add(kind FaultKind, at place, format string, args ...any) {
	c.faults = append(c.faults, Fault{Kind: kind, Job: at.job, Task: at.task, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) job(job Job) {
	if job.State != "completed" {
		c.add(Lost, place{job.ID, "*"}, "the job was acknowledged and is %s", job.State)
	}
	completed := 0
	for _, task := range job.Tasks {
		if task.completed() {
			completed++
		}
	}
	switch {
	case job.Completed > completed:
		c.add(Duplicated, place{job.ID, "*"}, "%d completions were accepted for %d completed tasks", job.Completed, completed)
	case job.Completed < completed:
		c.add(Lost, place{job.ID, "*"}, "%d completions were counted for %d completed tasks", job.Completed, completed)
	}
	for _, task := range job.Tasks {
		at := place{job.ID, task.ID}
		c.done(at, task)
		c.again(at)
		c.order(at, task)
	}
}

// done: the accepted completion is one that the ledger has.
func (c *checker) done(at place, task Task) {
	if !task.completed() {
		c.add(Lost, at, "the task was acknowledged and is %s", task.State)
		return
	}
	for _, r := range c.runs[at] {
		if r.Attempt == task.Attempt && r.Worker == task.Worker && r.Ended() && r.Exit == 0 {
			return
		}
	}
	c.add(Lost, at, "shown as completed by attempt %d on %s, which no command ended: %s", task.Attempt, task.Worker, show(c.runs[at]))
}

// again: each start has a higher attempt and token than the one before, and a
// reason.
func (c *checker) again(at place) {
	runs := c.runs[at]
	for i := 1; i < len(runs); i++ {
		before, r := runs[i-1], runs[i]
		switch {
		case r.Attempt == before.Attempt:
			c.add(Duplicated, at, "attempt %d was executed twice: %s", r.Attempt, show(runs))
			continue
		case r.Attempt < before.Attempt:
			c.add(Backwards, at, "attempt %d began after attempt %d: %s", r.Attempt, before.Attempt, show(runs))
			continue
		case r.Token <= before.Token:
			c.add(Backwards, at, "token %d came after token %d", r.Token, before.Token)
		}
		if failed := before.Ended() && before.Exit != 0; !failed && !Harmed(c.harms, &before, r.Start) {
			c.add(Restarted, at, "attempt %d began although %s, which held attempt %d, was well: %s", r.Attempt, before.Worker, before.Attempt, show(runs))
		}
	}
}

// order: no start comes before some run of each dependency has ended well.
func (c *checker) order(at place, task Task) {
	for _, r := range c.runs[at] {
		for _, dependency := range task.After {
			if !c.endedBy(place{at.job, dependency}, r.Start) {
				c.add(Disorder, at, "attempt %d began before %s had ended", r.Attempt, dependency)
			}
		}
	}
}

func (c *checker) endedBy(at place, moment time.Duration) bool {
	for _, r := range c.runs[at] {
		if r.Ended() && r.Exit == 0 && r.End <= moment {
			return true
		}
	}
	return false
}

// show lists runs for messages.
func show(runs []Run) string {
	if len(runs) == 0 {
		return " nothing was executed"
	}
	var text strings.Builder
	for _, r := range runs {
		end := "no end"
		if r.Ended() {
			end = fmt.Sprintf("%v exit %d", r.End, r.Exit)
		}
		fmt.Fprintf(&text, " [attempt %d on %s, pid %d, token %d: %v to %s]", r.Attempt, r.Worker, r.Pid, r.Token, r.Start, end)
	}
	return text.String()
}
