package spec

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// MaxQueueWeight is the largest weight of a queue.
	MaxQueueWeight = 10_000
	// maxQueueEntries bounds the resources and the labels of a queue.
	maxQueueEntries = 64
	// maxQueueText bounds the names and values of a queue together: fewer than fit into the
	// state.
	maxQueueText = 14 << 10 // bytes
)

// queueProblem returns what is wrong with the name of a queue.
func queueProblem(name string) problem { return nameProblem(name) }

// CheckQueue checks the name and the settings of a queue. The error is [Faults].
func CheckQueue(name string, q *dtaskv1.QueueSettings) error {
	var faults Faults
	add := func(where string, p problem) {
		if p.bad() {
			faults = append(faults, Fault{Where: where, What: p.what, Do: p.do})
		}
	}
	add("name", queueProblem(name))
	if w := q.GetWeight(); w > MaxQueueWeight {
		add("weight", problem{fmt.Sprintf("%d is out of range", w), fmt.Sprintf("must be 1 to %d", MaxQueueWeight)})
	}
	if len(q.GetMax()) > maxQueueEntries || len(q.GetRequire()) > maxQueueEntries {
		add("max and require", problem{"too many entries", fmt.Sprintf("must be at most %d each", maxQueueEntries)})
	}
	text := 0
	for _, resource := range namesOf(q.GetMax()) {
		text += len(resource)
		add("max."+resource, labelNameProblem(resource))
		if q.GetMax()[resource] <= 0 {
			add("max."+resource, problem{"a quota of 0 or less lets nothing start", "write an amount above 0, or pause the queue"})
		}
	}
	for _, key := range namesOf(q.GetRequire()) {
		text += len(key) + len(q.GetRequire()[key])
		add("require."+key, reservedLabelProblem(key))
		add("require."+key, labelProblem(key, q.GetRequire()[key]))
		add("require."+key, signProblem(q.GetRequire()[key]))
	}
	if text > maxQueueText {
		add("max and require", problem{fmt.Sprintf("have %d bytes of names and values", text), fmt.Sprintf("must be at most %d", maxQueueText)})
	}
	faults = append(faults, rateFaults("submit_", q.GetSubmitRate(), q.GetSubmitPeriodMs(), q.GetSubmitBurst())...)
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// ParseAmount parses an amount of a resource as job files have it, such as 0.5 or 8GiB, in
// thousandths of its unit. It is for quotas: 0 is for CheckQueue, which refuses it.
func ParseAmount(resource, text string) (int64, error) {
	if strings.HasPrefix(text, "-") {
		return 0, asError(problem{quote(text) + " is negative", "write an amount above 0"})
	}
	if resource == "memory" || resource == "disk" {
		v, p := size(text)
		return v * 1000, asError(p)
	}
	v, p := thousandths(text)
	return v, asError(p)
}

// QueuePosition returns where a job file names a queue: line and column from 1, or 0 if it
// does not, or by an expression.
func QueuePosition(text []byte, name string) (line, column int) {
	for _, d := range split(text) {
		var root yaml.Node
		if yaml.Unmarshal(d.text, &root) != nil || len(root.Content) == 0 {
			continue
		}
		queue := valueOf(valueOf(root.Content[0], "job"), "queue")
		if queue != nil && queue.Value == name {
			return d.line + queue.Line, queue.Column
		}
	}
	return 0, 0
}

// valueOf returns the value of a key of a mapping; nil without one.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
