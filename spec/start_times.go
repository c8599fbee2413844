package spec

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v4"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// startAfterProblem checks that a job may start before its deadline. Both count from the
// submission: else the job ends before any of its tasks starts.
func startAfterProblem(h *dtaskv1.JobHeader) problem {
	after, deadline := h.GetStartAfterMs(), h.GetDeadlineMs()
	if after <= 0 || deadline <= 0 || after < deadline {
		return problem{}
	}
	return problem{
		fmt.Sprintf("%v is not before the deadline of %v, which counts from the submission, too",
			time.Duration(after)*time.Millisecond, time.Duration(deadline)*time.Millisecond),
		"write a longer deadline, or a shorter start_after",
	}
}

// startAfter checks the start time of a job, of which all fields have been read.
func (r *reader) startAfter(n *yaml.Node, h *dtaskv1.JobHeader, es []entry) {
	for _, e := range es {
		if e.key == "start_after" {
			n = e.value
		}
	}
	r.enter("start_after")
	r.holds(n, startAfterProblem(h))
	r.leave()
}
