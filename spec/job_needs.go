package spec

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// jobConditions are how a needed job must end. Tolerated failures are not a condition: a
// job completes in spite of them, and fails if they exceed max_failures.
var jobConditions = slices.DeleteFunc(slices.Clone(conditions), func(w keyword[dtaskv1.Condition]) bool {
	return w.is == dtaskv1.Condition_CONDITION_TOLERATED
})

// ParseJobCondition parses the condition of a needed job, such as ended.
func ParseJobCondition(word string) (dtaskv1.Condition, error) {
	texts := make([]string, len(jobConditions))
	for i, w := range jobConditions {
		if texts[i] = w.text; w.text == word {
			return w.is, nil
		}
	}
	return 0, fmt.Errorf("unknown condition %s: write %s", quote(word), oneOf(texts))
}

// readJobNeeds reads the jobs that a job needs: numbers, and mappings with a
// condition.
func readJobNeeds(r *reader, j *jobBuilder, e entry) {
	nodes, ok := r.items(e.value, "needs: [42]")
	if !ok {
		return
	}
	r.holds(e.value, needsProblem(len(nodes)))
	for i, n := range nodes {
		r.enterItem(i)
		n = deref(n)
		need := &dtaskv1.JobNeed{Condition: dtaskv1.Condition_CONDITION_COMPLETED}
		if n.Kind == yaml.MappingNode {
			es := r.entries(n, "{job: 42, when: ended}")
			jobNeedFields.read(r, need, es, func(e entry) { r.unknown(e, jobNeedFields.names, "") })
			if !has(es, "job") {
				r.fault(n, "job is missing", "write job: with the number of the job that this one needs")
			}
		} else {
			readNeededJob(r, need, n)
		}
		twice := slices.ContainsFunc(j.header.GetNeeds(), func(x *dtaskv1.JobNeed) bool { return x.GetJob() == need.GetJob() })
		if twice && need.GetJob() != 0 {
			r.fault(n, fmt.Sprintf("duplicate %d", need.GetJob()), "remove one of them")
		}
		j.header.Needs = append(j.header.Needs, need)
		r.leave()
	}
}

// jobNeedFields are the fields of a needed job with a condition.
var jobNeedFields = fields[*dtaskv1.JobNeed]{
	"job":  func(r *reader, d *dtaskv1.JobNeed, e entry) { readNeededJob(r, d, e.value) },
	"when": func(r *reader, d *dtaskv1.JobNeed, e entry) { d.Condition, _ = readKeyword(r, e.value, jobConditions) },
}

func readNeededJob(r *reader, d *dtaskv1.JobNeed, n *yaml.Node) {
	if isText(n) {
		r.fault(n, "must be the number of a job, not text", "write needs: [42]; tasks of this job are needed in a task's own needs")
		return
	}
	v, _ := r.number(n, 1, 1<<53)
	d.Job = uint64(v) //nolint:gosec // checked
}

func needsProblem(n int) problem {
	if n <= MaxNeeds {
		return problem{}
	}
	return problem{fmt.Sprintf("has %s jobs", count(n)), fmt.Sprintf("at most %s; let the job need one that needs them", count(MaxNeeds))}
}

// checkNeeds checks the jobs that a decoded job needs.
func (c *Checker) checkNeeds(list []*dtaskv1.JobNeed) {
	c.refuse("job.needs", needsProblem(len(list)))
	seen := make(map[uint64]bool, len(list))
	for i, n := range list {
		at := fmt.Sprintf("job.needs[%d]", i)
		switch {
		case n.GetJob() == 0:
			c.refuseIn(at, ".job", problem{"is missing", "send the number of a job"})
		case seen[n.GetJob()]:
			c.refuseIn(at, "", problem{fmt.Sprintf("duplicate %d", n.GetJob()), "remove one of them"})
		}
		seen[n.GetJob()] = true
		if n.GetCondition() != 0 {
			c.refuseIn(at, ".condition", enumProblem(n.GetCondition(), jobConditions))
		}
	}
}

// formatJobNeeds writes the jobs that a job needs as a job file has them.
func formatJobNeeds(needs []*dtaskv1.JobNeed) []any {
	list := make([]any, len(needs))
	for i, n := range needs {
		list[i] = n.GetJob()
		if conditional(n.GetCondition()) {
			list[i] = object{"job": n.GetJob(), "when": keywordOf(jobConditions, n.GetCondition())}
		}
	}
	return list
}
