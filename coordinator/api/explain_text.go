package api

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// These tables are the list of all codes of Explain, which docs/explain.md documents. What
// delays a task and is new gets its code here: an obstacle of the scheduler in
// scheduler/obstacle.go and a change in scheduler/change.go, which the random states of
// TestChangesAreSoundAndComplete must contain; anything else in explain.go.

// reasonTexts makes a sentence of a reason, or of an obstacle at a worker.
var reasonTexts = map[string]func(r *dtaskv1.Reason) string{
	// Blocked.
	"waits_for_job": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("its job needs job %s, which must end as %s", r.GetJob(), r.GetDetail())
	},
	"job_start_time": func(r *dtaskv1.Reason) string {
		return "its job starts no earlier than " + formatTime(r.GetUntil())
	},
	"waits_for_key": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("its job has the concurrency key %s and waits for job %s", r.GetName(), r.GetJob())
	},
	"waits_for_more_jobs": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("its job has the concurrency key %s and waits for %s more", r.GetName(), plural(r.GetWant(), "job"))
	},
	"job_starts": func(r *dtaskv1.Reason) string {
		if r.GetName() == "" {
			return "its job is about to start"
		}
		return "its job starts when nothing of earlier jobs with the concurrency key " + r.GetName() + " runs any more"
	},
	"waits_for_ordinary_tasks": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("a cleanup task: %d of the %d ordinary tasks of its job have not ended", r.GetWant(), r.GetTotal())
	},
	"waits_for_task": func(r *dtaskv1.Reason) string {
		return withCause(fmt.Sprintf("it waits for task %s, which is %s", r.GetTask(), r.GetDetail()), r)
	},
	"waits_for_array": func(r *dtaskv1.Reason) string {
		return withCause(fmt.Sprintf("it waits for array %s, of which %d of %d tasks have not ended", r.GetTask(), r.GetWant(), r.GetTotal()), r)
	},
	"waits_for_more_tasks": func(r *dtaskv1.Reason) string {
		if r.GetWant() == 0 {
			return "it waits for tasks before it"
		}
		return fmt.Sprintf("it waits for %s more", plural(r.GetWant(), "task"))
	},

	// Scheduled.
	"retry_delay": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("attempt %d starts no earlier than %s: %s", r.GetAttempt(), formatTime(r.GetUntil()), firstLine(r.GetDetail()))
	},
	"start_time": func(r *dtaskv1.Reason) string { return "it starts no earlier than " + formatTime(r.GetUntil()) },

	// Pending.
	"assignment_paused": fixed("the leader assigns no tasks, because replicas disagree: see dtaskctl cluster status"),
	"assignment_busy":   fixed("a worker can take it, and more tasks are ready than the leader assigns at once"),
	"being_assigned":    fixed("a worker can take it: it is about to be assigned"),
	"waits_for_key_worker": func(r *dtaskv1.Reason) string {
		text := fmt.Sprintf("it waits for worker %s (%s), which its affinity chooses", r.GetWorker(), loadText(r))
		if r.GetUntil() == 0 {
			return text
		}
		return text + ", while others are idle at most until " + formatTime(r.GetUntil())
	},
	"waits_for_stopping": func(r *dtaskv1.Reason) string {
		return "a cleanup task: it waits until cancelled attempts of its job have stopped, at most until " + formatTime(r.GetUntil())
	},
	"max_parallel": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("array %s has %s, and max_parallel is %d: %s", r.GetTask(), plural(r.GetFree(), "attempt"), r.GetTotal(), strings.Join(r.GetTasks(), ", "))
	},
	"limit_full": func(r *dtaskv1.Reason) string {
		text := fmt.Sprintf("limit %s is full: %s of %d", r.GetName(), plural(r.GetFree(), "attempt"), r.GetTotal())
		switch named := int64(len(r.GetTasks())); {
		case named == 0:
		case named < r.GetFree():
			text += ", such as those of " + strings.Join(r.GetTasks(), ", ")
		default:
			text += ", held by " + strings.Join(r.GetTasks(), ", ")
		}
		return text
	},
	"limit_rate": func(r *dtaskv1.Reason) string {
		text := fmt.Sprintf("limit %s lets %s start, and all of these have", r.GetName(), r.GetValue())
		if r.GetUntil() == 0 {
			return text
		}
		return text + "; the next one may start at " + formatTime(r.GetUntil())
	},
	"limit_settles": func(r *dtaskv1.Reason) string {
		return "the new leader does not know yet how many attempts count towards limit " + r.GetName()
	},
	"queue_paused": func(r *dtaskv1.Reason) string { return "queue " + r.GetValue() + " is paused" },
	"queue_full": func(r *dtaskv1.Reason) string {
		if r.GetSaved() > 0 {
			return fmt.Sprintf("queue %s has %s of its quota of %d", r.GetValue(), plural(r.GetTotal()-r.GetSaved(), "running task"), r.GetTotal()) + savedText(r, "1")
		}
		return fmt.Sprintf("queue %s has as many running tasks as its quota of %d", r.GetValue(), r.GetTotal())
	},
	"queue_short": func(r *dtaskv1.Reason) string {
		if r.GetWant() > r.GetTotal() {
			return fmt.Sprintf("queue %s: %s needed, and its quota is %s", r.GetValue(), quantity(r.GetName(), r.GetWant()), amountText(r.GetName(), r.GetTotal())) +
				neverStarts(r.GetAlternative())
		}
		left := r.GetFree()
		if r.GetSaved() > 0 {
			left = max(left, 0) // what runs takes of what is saved
		}
		return fmt.Sprintf("queue %s: %s needed, %s left of its quota of %s", r.GetValue(), quantity(r.GetName(), r.GetWant()),
			amountText(r.GetName(), left), amountText(r.GetName(), r.GetTotal())) + savedText(r, amountText(r.GetName(), r.GetSaved())) + inAlternative(r.GetAlternative())
	},
	"takes_place": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("worker %s is kept for it and stops %s", r.GetWorker(), plural(r.GetWant(), "preemptible attempt"))
	},
	"no_worker": fixed("no worker is up"),
	"fits_no_worker": func(r *dtaskv1.Reason) string {
		switch {
		case r.GetDetail() == "":
			return "it fits no known worker: none that accepts tasks could run it, even if idle"
		case r.GetCauseCode() == "worker_drains":
			return "it fits no worker that accepts tasks: " + r.GetDetail()
		}
		return "it fits no known worker, even if idle: " + r.GetDetail() + mostText(r)
	},
	"no_free_capacity": fixed("no worker that could run it has a free slot with what it needs"),
	"tasks_ahead":      func(r *dtaskv1.Reason) string { return "at most " + aheadText(r) },
	"many_tasks_ahead": func(r *dtaskv1.Reason) string { return "at least " + aheadText(r) },
	"queues_ahead": func(r *dtaskv1.Reason) string {
		return "before its queue by share: " + plural(r.GetTotal(), "other queue") + " with ready tasks"
	},
	"owners_ahead": func(r *dtaskv1.Reason) string {
		return "before its owner by share: " + plural(r.GetTotal(), "other owner") + " with ready tasks of its priority"
	},
	"queue_timeout": func(r *dtaskv1.Reason) string {
		return "its queue timeout ends at " + formatTime(r.GetUntil())
	},

	// Pending tasks that another task or a whole job waits for.
	"waits_for_worker":   fixed("it is ready and waits for a worker"),
	"no_suitable_worker": func(r *dtaskv1.Reason) string { return r.GetDetail() },

	// Tasks of a job.
	"tasks_starting": fixed("a worker has them and has not reported their start"),
	"tasks_running":  fixed("they run"),
	"job_ended":      func(r *dtaskv1.Reason) string { return "it has ended: " + r.GetDetail() },

	// Obstacles at workers.
	"worker_drains":        fixed("drains"),
	"worker_not_connected": fixed("not connected to the leader"),
	"worker_shuts_down":    fixed("shuts down"),
	"worker_down":          fixed("down"),
	"no_free_slot": func(r *dtaskv1.Reason) string {
		switch {
		case r.GetTotal() == 0:
			return "has no slots"
		case r.GetVaries():
			return "no free slot"
		}
		return fmt.Sprintf("no free slot of %d", r.GetTotal())
	},
	"worker_reserved":   fixed("reserved for tasks that require one of its labels"),
	"worker_kept":       func(r *dtaskv1.Reason) string { return "kept free for a task of queue " + r.GetValue() },
	"type_missing":      func(r *dtaskv1.Reason) string { return "does not " + handling(r.GetName()) },
	"namespace_missing": func(r *dtaskv1.Reason) string { return "does not serve the namespace " + r.GetName() },
	"label_missing": func(r *dtaskv1.Reason) string {
		if r.GetValue() == "*" {
			return "lacks the label " + r.GetName()
		}
		return "lacks the label " + r.GetName() + "=" + r.GetValue()
	},
	"label_not_one_of": func(r *dtaskv1.Reason) string {
		return "lacks the label " + r.GetName() + " with one of " + strings.Trim(r.GetValue(), "[]")
	},
	"label_excluded": func(r *dtaskv1.Reason) string {
		return "has the label " + r.GetName() + "=" + r.GetValue() + ", which is excluded"
	},
	"secret_missing": func(r *dtaskv1.Reason) string { return "lacks the secret " + r.GetName() },
	"resource_short": func(r *dtaskv1.Reason) string {
		most := ""
		if r.GetVaries() {
			most = "at most "
		}
		return fmt.Sprintf("%s needed, %s%s of %s free", quantity(r.GetName(), r.GetWant()), most, amountText(r.GetName(), r.GetFree()), amountText(r.GetName(), r.GetTotal())) + inAlternative(r.GetAlternative())
	},

	// Assigned and running.
	"starting": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("worker %s has attempt %d and has not reported its start", r.GetWorker(), r.GetAttempt()) + taking(r)
	},
	"running": func(r *dtaskv1.Reason) string {
		text := fmt.Sprintf("attempt %d runs on worker %s", r.GetAttempt(), r.GetWorker()) + taking(r)
		if r.GetTotal() > 0 {
			text += fmt.Sprintf(", %d %% done", r.GetFree()/10)
		}
		if r.GetDetail() != "" {
			text += ": " + firstLine(r.GetDetail())
		}
		return text
	},
	"preempted": func(r *dtaskv1.Reason) string {
		if r.GetJob() == "" {
			return "it is being stopped: an urgent task takes its place"
		}
		return fmt.Sprintf("it is being stopped: an urgent task of job %s takes its place", r.GetJob())
	},
	"spilled": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("spilled from %s (%s)", r.GetWorker(), loadText(r))
	},
	"waits_at_worker": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("attempt %d waits for a slot of worker %s; the number of attempts that must end before is %d", r.GetAttempt(), r.GetWorker(), r.GetWant())
	},
	"not_confirmed": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("worker %s has attempt %d and has not reported to the new leader", r.GetWorker(), r.GetAttempt())
	},
	"worker_lost": func(r *dtaskv1.Reason) string {
		if r.GetUntil() == 0 {
			return fmt.Sprintf("worker %s is down", r.GetWorker())
		}
		return fmt.Sprintf("worker %s is not connected, and is marked down at %s unless it returns", r.GetWorker(), formatTime(r.GetUntil()))
	},
	"limit_lease": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("worker %s is down and may still run the attempt, which counts towards its limits: the task is ready again at %s", r.GetWorker(), formatTime(r.GetUntil()))
	},
	"lease": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("worker %s is down and may still run the attempt: the task ends as lost at %s", r.GetWorker(), formatTime(r.GetUntil()))
	},

	// Ended.
	"completed": func(r *dtaskv1.Reason) string { return fmt.Sprintf("attempt %d completed", r.GetAttempt()) },
	"result_reused": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("it completed with the result of %s/%s, without running", r.GetJob(), r.GetTask())
	},
	"failed": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("attempt %d failed, and is not retried: %s", r.GetAttempt(), firstLine(r.GetDetail()))
	},
	"retries_exhausted": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("retries exhausted after %s that failed or were lost: %s", plural(r.GetWant(), "attempt"), firstLine(r.GetDetail()))
	},
	"outcome_unknown": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("attempt %d runs at most once, and its outcome is unknown", r.GetAttempt())
	},
	"cancelled": func(r *dtaskv1.Reason) string { return "cancelled: " + firstLine(r.GetDetail()) },
	"first_cause": func(r *dtaskv1.Reason) string {
		return fmt.Sprintf("the first cause is task %s, %s", r.GetTask(), firstLine(r.GetDetail()))
	},
}

// changeTexts makes a sentence of a change; task is JOB/TASK.
var changeTexts = map[string]func(c *dtaskv1.StartChange, task string) string{
	"undrain_worker": func(c *dtaskv1.StartChange, _ string) string {
		if c.GetWorkers() == 1 {
			return "undrain the worker: dtaskctl worker undrain " + c.GetNames()[0]
		}
		return anyOf(c) + " is undrained: dtaskctl worker undrain NAME"
	},
	"connect_worker": func(c *dtaskv1.StartChange, _ string) string { return anyOf(c) + " connects again" },
	"add_label": func(c *dtaskv1.StartChange, _ string) string {
		if c.GetValue() == "*" {
			return anyOf(c) + " has the label " + c.GetName() + ", with any value"
		}
		return anyOf(c) + " has the label " + c.GetName() + "=" + c.GetValue()
	},
	"remove_label": func(c *dtaskv1.StartChange, _ string) string {
		return anyOf(c) + " does not have the label " + c.GetName() + "=" + c.GetValue()
	},
	"add_secret": func(c *dtaskv1.StartChange, _ string) string { return anyOf(c) + " has the secret " + c.GetName() },
	"add_type":   func(c *dtaskv1.StartChange, _ string) string { return anyOf(c) + " can " + handling(c.GetName()) },
	"add_namespace": func(c *dtaskv1.StartChange, _ string) string {
		return anyOf(c) + " serves the namespace " + c.GetName()
	},
	"add_resource": func(c *dtaskv1.StartChange, _ string) string {
		return anyOf(c) + " has " + moreText(c.GetName(), c.GetAmount()) + " more " + c.GetName()
	},
	"add_slots": func(c *dtaskv1.StartChange, _ string) string {
		return anyOf(c) + " has " + plural(c.GetAmount(), "more slot")
	},
	"unreserve_worker": func(c *dtaskv1.StartChange, _ string) string { return anyOf(c) + " is not started with --reserved" },
	"raise_max_parallel": func(c *dtaskv1.StartChange, _ string) string {
		return fmt.Sprintf("max_parallel of its array is %d", c.GetAmount())
	},
	"raise_limit": func(c *dtaskv1.StartChange, _ string) string {
		return fmt.Sprintf("limit %s allows %d", c.GetName(), c.GetAmount())
	},
	"remove_rate": func(c *dtaskv1.StartChange, _ string) string {
		if c.GetAmount() == 0 {
			return fmt.Sprintf("limit %s has no rate", c.GetName())
		}
		return fmt.Sprintf("limit %s has no rate, and allows %d", c.GetName(), c.GetAmount())
	},
	"resume_queue": func(c *dtaskv1.StartChange, _ string) string {
		return "resume the queue: dtaskctl queue resume " + c.GetValue()
	},
	"raise_max_running": func(c *dtaskv1.StartChange, _ string) string {
		return fmt.Sprintf("raise the quota on running tasks of queue %s to %d", c.GetValue(), c.GetAmount())
	},
	"raise_max": func(c *dtaskv1.StartChange, _ string) string {
		return "raise the quota of its queue to " + quantity(c.GetName(), c.GetAmount())
	},
	"drop_label": func(c *dtaskv1.StartChange, _ string) string {
		return "it does not require the label " + c.GetName() + "=" + c.GetValue()
	},
	"drop_secret": func(c *dtaskv1.StartChange, _ string) string { return "it does not need the secret " + c.GetName() },
	"lower_resource": func(c *dtaskv1.StartChange, _ string) string {
		if c.GetAmount() == 0 {
			return "it needs no " + c.GetName() + inAlternative(c.GetAlternative())
		}
		return "it needs at most " + quantity(c.GetName(), c.GetAmount()) + inAlternative(c.GetAlternative())
	},
	"add_worker": func(c *dtaskv1.StartChange, _ string) string {
		if name := c.GetWorker().GetLabels()[fsm.WorkerLabel]; name != "" {
			return "worker " + name + " joins, with " + offerText(c.GetWorker())
		}
		return "another worker joins, with " + offerText(c.GetWorker())
	},
	"drop_affinity": func(*dtaskv1.StartChange, string) string { return "it has no affinity" },
	"remove_start_time": func(_ *dtaskv1.StartChange, task string) string {
		return "remove its start time: dtaskctl update " + task + " --not-before now"
	},
	"retry_task": func(_ *dtaskv1.StartChange, task string) string { return "retry it: dtaskctl retry " + task },
}

// estimateTexts makes a sentence of an estimate. now is Unix ms.
var estimateTexts = map[string]func(e *dtaskv1.StartEstimate, now int64) string{
	"expected": func(e *dtaskv1.StartEstimate, now int64) string {
		return fmt.Sprintf("it is expected to start in %s to %s, if no task of a higher priority becomes ready before", roundTime(e.GetFrom()-now), roundTime(e.GetTo()-now))
	},
	"few_samples": func(e *dtaskv1.StartEstimate, _ int64) string {
		which := "a task"
		if e.GetTask() != "" {
			which = "tasks like " + e.GetJob() + "/" + e.GetTask()
		}
		return "when it starts is unknown: fewer than 5 run times are known of " + which
	},
	"too_many_attempts": func(*dtaskv1.StartEstimate, int64) string {
		return "when it starts is unknown: too many attempts must end before"
	},
	"rate_limited": func(*dtaskv1.StartEstimate, int64) string {
		return "when it starts is not estimated: a limit with a rate decides about it, or about a task before it"
	},
	"never_starts": func(*dtaskv1.StartEstimate, int64) string {
		return "when it starts is unknown: it would not even start after everything that runs and waits"
	},
}

// roundTime is a duration in ms, rounded to a twentieth of its size or less.
func roundTime(ms int64) time.Duration {
	d := time.Duration(max(ms, 0)) * time.Millisecond
	switch {
	case d < time.Second:
		return d.Round(10 * time.Millisecond)
	case d < 20*time.Second:
		return d.Round(100 * time.Millisecond)
	case d < 20*time.Minute:
		return d.Round(time.Second)
	}
	return d.Round(time.Minute)
}

// withCause adds why the task that is waited for is in its state.
func withCause(text string, r *dtaskv1.Reason) string {
	if r.GetCause() == "" {
		return text
	}
	return text + ": " + r.GetCause()
}

func fixed(s string) func(*dtaskv1.Reason) string { return func(*dtaskv1.Reason) string { return s } }

// sentence and changeText need a row for each code, which a test demands.
func sentence(r *dtaskv1.Reason) string { return reasonTexts[r.GetCode()](r) }

func changeText(c *dtaskv1.StartChange, job, task string) string {
	return changeTexts[c.GetCode()](c, job+"/"+task)
}

// anyOf names the workers of a change.
func anyOf(c *dtaskv1.StartChange) string {
	names := strings.Join(c.GetNames(), ", ")
	switch more := int(c.GetWorkers()) - len(c.GetNames()); {
	case c.GetWorkers() == 1:
		return "worker " + names
	case more > 0:
		return fmt.Sprintf("any of %d workers (%s and %d more)", c.GetWorkers(), names, more)
	}
	return "any of the workers " + names
}

// handling is what a worker does for tasks of a type.
func handling(typ string) string {
	if typ == taskbody.CommandType {
		return "run commands"
	}
	return "handle tasks of type " + strconv.Quote(typ)
}

func aheadText(r *dtaskv1.Reason) string {
	text := plural(r.GetTotal(), "ready task") + " before it"
	if r.GetWant() > 0 {
		text += fmt.Sprintf(", %d of a higher priority", r.GetWant())
	}
	return text
}

func offerText(o *dtaskv1.WorkerOffer) string {
	parts := []string{plural(int64(o.GetSlots()), "slot")}
	if typ := o.GetType(); typ != "" && typ != taskbody.CommandType {
		parts = append(parts, "tasks of type "+strconv.Quote(typ))
	}
	if n := o.GetNamespace(); n != "" && n != auth.DefaultNamespace {
		parts = append(parts, "the namespace "+n)
	}
	for _, name := range slices.Sorted(maps.Keys(o.GetResources())) {
		parts = append(parts, quantity(name, o.GetResources()[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(o.GetLabels())) {
		if name == fsm.WorkerLabel {
			continue // it is the worker's name
		}
		parts = append(parts, "the label "+name+"="+o.GetLabels()[name])
	}
	for _, name := range o.GetSecrets() {
		parts = append(parts, "the secret "+name)
	}
	return strings.Join(parts, ", ")
}

// mostText is the largest amount of a resource that one worker has, if one is missing.
func mostText(r *dtaskv1.Reason) string {
	if r.GetUnit() != unitThousandths || r.GetTotal() == 0 {
		return ""
	}
	return "; the most is " + amountText(r.GetName(), r.GetTotal())
}

// inAlternative names the alternative of a task's resources that a text is about; 0: of all.
func inAlternative(number uint32) string {
	if number == 0 {
		return ""
	}
	return fmt.Sprintf(" (alternative %d)", number)
}

// neverStarts is the end of a text about what is missing for good, of an alternative or of all.
func neverStarts(alternative uint32) string {
	if alternative == 0 {
		return ": it never starts"
	}
	return inAlternative(alternative)
}

// taking says which of several alternatives an attempt takes.
func taking(r *dtaskv1.Reason) string {
	if r.GetAlternative() == 0 {
		return ""
	}
	return ", with " + r.GetValue() + inAlternative(r.GetAlternative())
}

// quantities are amounts of resources by name: 1 gpu, 2 cpu.
func quantities(resources map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		parts = append(parts, quantity(name, resources[name]))
	}
	return strings.Join(parts, " and ")
}

// quantity is an amount of a resource, in thousandths of its unit, with its name.
func quantity(name string, amount int64) string { return amountText(name, amount) + " " + name }

// amountText is an amount of a resource, in thousandths of its unit. It is exact, apart from
// sizes, which are rounded down.
func amountText(name string, amount int64) string { return roundedAmount(name, amount, math.Floor) }

// moreText is amountText for an amount that must suffice: sizes are rounded up.
func moreText(name string, amount int64) string { return roundedAmount(name, amount, math.Ceil) }

// roundedAmount shows memory and disk, whose unit is the byte, with two decimal places.
func roundedAmount(name string, amount int64, round func(float64) float64) string {
	value := float64(amount) / 1000
	if name != "memory" && name != "disk" {
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	at := 0
	for ; at < len(units)-1 && math.Abs(value) >= 1024; at++ {
		value /= 1024
	}
	return strconv.FormatFloat(round(value*100)/100, 'f', -1, 64) + " " + units[at]
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}

// formatTime formats a time.
func formatTime(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05Z") }

// firstLine is the first line of an error, which may have the last output of a command.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// savedText is what is saved of a quota, and for which task, which the caller may not be allowed to
// see.
func savedText(r *dtaskv1.Reason, amount string) string {
	if r.GetSaved() == 0 {
		return ""
	}
	return ", with " + amount + " saved for " + cmp.Or(strings.Join(r.GetTasks(), ", "), "an older task")
}
