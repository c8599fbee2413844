package spec

import (
	"fmt"
	"strings"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// The fields of a job, apart from its tasks: how each is read from a job file,
// and how its value is checked in a decoded job.

var jobFields = fields[*jobBuilder]{
	"name": func(r *reader, j *jobBuilder, e entry) {
		j.header.Name, _ = r.checked(e.value, nameProblem)
	},
	"owner": func(r *reader, j *jobBuilder, e entry) {
		j.header.Owner, _ = r.checked(e.value, ownerProblem)
		r.holds(e.value, plainText(j.header.GetOwner()))
	},
	"namespace": func(r *reader, j *jobBuilder, e entry) {
		j.header.Namespace, _ = r.checked(e.value, namespaceProblem)
	},
	"queue": func(r *reader, j *jobBuilder, e entry) {
		j.header.Queue, _ = r.checked(e.value, queueProblem)
	},
	"priority": func(r *reader, j *jobBuilder, e entry) {
		if v, ok := readPriority(r, e.value); ok {
			j.header.Priority = v
		}
	},
	"env": func(r *reader, j *jobBuilder, e entry) {
		j.header.Env = r.env(e, nil)
		r.plainEnv(e, j.header.GetEnv())
		j.defaults.jobEnv = j.header.GetEnv()
		r.holds(e.value, envSizeProblem(j.header.GetEnv(), nil))
	},
	"labels": func(r *reader, j *jobBuilder, e entry) {
		j.header.Labels = r.labels(e, nil, "{team: data}")
	},
	"deadline": func(r *reader, j *jobBuilder, e entry) {
		j.header.DeadlineMs, _ = r.duration(e.value, false)
	},
	"start_at": func(r *reader, j *jobBuilder, e entry) {
		if r.scheduled {
			r.fault(e.at, "has no place in a file with a schedule, which decides when its runs start", "leave it out; start_after delays each run")
		}
		j.header.StartAtMs = r.instant(e.value)
	},
	"start_after": func(r *reader, j *jobBuilder, e entry) {
		j.header.StartAfterMs, _ = r.duration(e.value, false)
	},
	"expires": func(r *reader, j *jobBuilder, e entry) {
		j.header.ExpiresMs, _ = r.duration(e.value, false)
	},
	"concurrency": readConcurrency,
	"on_failure": func(r *reader, j *jobBuilder, e entry) {
		if v, ok := readKeyword(r, e.value, onFailures); ok {
			j.header.OnFailure = v
		}
	},
	"webhook": func(r *reader, j *jobBuilder, e entry) {
		j.header.Webhook, _ = r.checked(e.value, webhookProblem)
		r.holds(e.value, plainText(j.header.GetWebhook()))
	},
	"max_failures": func(r *reader, j *jobBuilder, e entry) {
		if percent, ok := strings.CutSuffix(e.value.Value, "%"); ok && isText(e.value) {
			v, p := thousandths(percent)
			if v > 100_000 {
				p = problem{fmt.Sprintf("%s exceeds 100%%", quote(e.value.Value)), "write a percentage from 0% to 100%"}
			}
			if r.holds(e.value, p) {
				j.tolerated = v
			}
			return
		}
		if isText(e.value) {
			r.fault(e.value, "must be a number or a percentage, not text", "write it like 5 or 2.5%")
			return
		}
		v, _ := r.number(e.value, 0, MaxTasks)
		j.header.MaxFailures = uint32(v)
	},
	"defaults": func(r *reader, j *jobBuilder, e entry) {
		policyFields.read(r, &j.defaults, r.entries(e.value, "defaults: {timeout: 10m}"), func(u entry) {
			elsewhere := ""
			if _, known := taskFields[u.key]; known {
				elsewhere = "write it in each task; it is no policy that tasks share"
			}
			r.unknown(u, policyFields.names, elsewhere)
		})
		r.plainEnv(e, j.defaults.env)
	},
	"params": func(*reader, *jobBuilder, entry) {}, // read before everything else
	"needs":  readJobNeeds,
	"tasks":  readTasks,
}

// checkJobFields checks the fields of a decoded job.
func (c *Checker) checkJobFields(h *dtaskv1.JobHeader) {
	c.refuse("job.name", nameProblem(h.GetName()))
	if h.GetOwner() != "" {
		c.refuse("job.owner", ownerProblem(h.GetOwner()))
	}
	if h.GetNamespace() != "" {
		c.refuse("job.namespace", namespaceProblem(h.GetNamespace()))
	}
	if h.GetQueue() != "" {
		c.refuse("job.queue", queueProblem(h.GetQueue()))
	}
	c.refuse("job.priority", enumProblem(h.GetPriority(), priorities))
	c.refuse("job.on_failure", enumProblem(h.GetOnFailure(), onFailures))
	if n := h.GetMaxFailures(); n > MaxTasks {
		c.refuse("job.max_failures", problem{fmt.Sprintf("%d is out of range", n), "send 0 to 1,000,000"})
	}
	c.refuse("job.deadline", durationProblem(h.GetDeadlineMs(), 0))
	c.refuse("job.start_at", instantProblem(h.GetStartAtMs()))
	c.refuse("job.start_after", durationProblem(h.GetStartAfterMs(), 0))
	c.refuse("job.expires", durationProblem(h.GetExpiresMs(), 0))
	c.checkConcurrency(h.GetConcurrency())
	if h.GetWebhook() != "" {
		c.refuse("job.webhook", webhookProblem(h.GetWebhook()))
	}
	c.env("job.env", h.GetEnv(), nil)
	c.labels("job.labels", h.GetLabels())
	c.refuse("job.params", paramsProblem(h.GetParams()))
	c.checkNeeds(h.GetNeeds())
}
