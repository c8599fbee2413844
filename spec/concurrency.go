package spec

import (
	"fmt"
	"strings"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	maxConcurrencyKey   = 128
	maxConcurrencyLimit = 1000
)

// protoOverlaps are the rules for overlaps in the form of the protocol.
var protoOverlaps = func() (list []keyword[dtaskv1.ScheduleOverlap]) {
	for _, w := range overlaps {
		list = append(list, keyword[dtaskv1.ScheduleOverlap]{w.text, dtaskv1.ScheduleOverlap(w.is)}) //nolint:gosec // 1 to 5
	}
	return list
}()

// readConcurrency reads how many jobs with a key may run.
func readConcurrency(r *reader, j *jobBuilder, e entry) {
	c := &dtaskv1.JobConcurrency{}
	es := r.entries(e.value, "concurrency: {key: deploy, overlap: wait}")
	concurrencyFields.read(r, c, es, func(u entry) { r.unknown(u, concurrencyFields.names, "") })
	if es != nil && !has(es, "key") {
		r.fault(e.value, "key is missing", "write key: with a text that the jobs share")
	}
	j.header.Concurrency = c
}

var concurrencyFields = fields[*dtaskv1.JobConcurrency]{
	"key": func(r *reader, c *dtaskv1.JobConcurrency, e entry) {
		c.Key, _ = r.checked(e.value, concurrencyKeyProblem)
		r.holds(e.value, plainText(c.GetKey()))
	},
	"limit": func(r *reader, c *dtaskv1.JobConcurrency, e entry) {
		v, _ := r.number(e.value, 1, maxConcurrencyLimit)
		c.Limit = uint32(v) //nolint:gosec // checked
	},
	"overlap": func(r *reader, c *dtaskv1.JobConcurrency, e entry) {
		c.Overlap, _ = readKeyword(r, e.value, protoOverlaps)
	},
}

func concurrencyKeyProblem(key string) problem {
	switch n := len(key); {
	case n == 0:
		return problem{"is empty", "write a text that the jobs share"}
	case n > maxConcurrencyKey:
		return problem{fmt.Sprintf("has %d bytes", n), fmt.Sprintf("at most %d", maxConcurrencyKey)}
	case strings.ContainsFunc(key, func(r rune) bool { return r < ' ' }):
		return problem{"has a control character", "write it on one line"}
	}
	return problem{}
}

// checkConcurrency checks a decoded job.
func (c *Checker) checkConcurrency(x *dtaskv1.JobConcurrency) {
	if x == nil {
		return
	}
	const at = "job.concurrency"
	c.refuseIn(at, ".key", concurrencyKeyProblem(x.GetKey()))
	if n := x.GetLimit(); n > maxConcurrencyLimit {
		c.refuseIn(at, ".limit", problem{fmt.Sprintf("%d is out of range", n), fmt.Sprintf("send 1 to %s", count(maxConcurrencyLimit))})
	}
	if x.GetOverlap() != 0 {
		c.refuseIn(at, ".overlap", enumProblem(x.GetOverlap(), protoOverlaps))
	}
}

// formatConcurrency writes it as a job file has it.
func formatConcurrency(c *dtaskv1.JobConcurrency) object {
	o := object{"key": c.GetKey()}
	set(o, "limit", c.GetLimit(), c.GetLimit() != 0)
	if c.GetOverlap() != 0 {
		o["overlap"] = keywordOf(protoOverlaps, c.GetOverlap())
	}
	return o
}
