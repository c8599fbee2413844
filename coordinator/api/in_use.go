package api

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// usage is what keeps a queue or a limit from being deleted: jobs that have not ended, and
// schedules. Those who may delete queues and limits see all namespaces.
type usage struct {
	jobs, schedules         []string // the first
	moreJobs, moreSchedules int
}

// usageOf finds the jobs and schedules whose header uses something.
func usageOf(st *fsm.State, uses func(h *dtaskv1.JobHeader) bool) *usage {
	u := new(usage)
	for j := range st.Jobs(0) {
		switch {
		case j.State.Terminal() || !uses(j.Header):
		case len(u.jobs) == maxExplainedNames:
			u.moreJobs++
		default:
			u.jobs = append(u.jobs, formatJobID(j.ID))
		}
	}
	for x := range st.Schedules() {
		switch {
		case !uses(x.Header()):
		case len(u.schedules) == maxExplainedNames:
			u.moreSchedules++
		default:
			u.schedules = append(u.schedules, quote(x.Name)+" in namespace "+quote(scheduleSpace(x)))
		}
	}
	return u
}

// conflict is the error for the deletion of something that is used. ofJobs is what to do about
// jobs.
func (u *usage) conflict(used, ofJobs string) error {
	var by, do []string
	if list := shortened(u.jobs, u.moreJobs); list != "" {
		by, do = append(by, "jobs that have not ended ("+list+")"), append(do, ofJobs)
	}
	if list := shortened(u.schedules, u.moreSchedules); list != "" {
		by, do = append(by, "schedules ("+list+")"), append(do, "set the schedules again without it, or delete them")
	}
	if len(by) == 0 { // they have ended since
		return conflict("%s nothing now: repeat the request", used)
	}
	return conflict("%s %s: %s", used, strings.Join(by, " and by "), strings.Join(do, "; "))
}

// shortened lists names, and counts those that are left out.
func shortened(names []string, more int) string {
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// usesQueue reports whether a job, or the jobs of a schedule, name a queue.
func usesQueue(name string) func(h *dtaskv1.JobHeader) bool {
	return func(h *dtaskv1.JobHeader) bool { return fsm.QueueOf(h) == name }
}

// usesLimit reports whether tasks of a job, or of the jobs of a schedule, use a limit.
func usesLimit(name string) func(h *dtaskv1.JobHeader) bool {
	return func(h *dtaskv1.JobHeader) bool {
		return slices.ContainsFunc(h.GetPolicies(), func(p *dtaskv1.TaskPolicy) bool {
			return slices.ContainsFunc(p.GetUses(), func(use string) bool { return fsm.LimitOf(use) == name })
		})
	}
}
