package spec

import (
	"go.yaml.in/yaml/v4"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// queueTimeout is how long a task may wait while it is ready, and what follows.
type queueTimeout struct {
	after    int64 // ms; 0 = none
	requeues bool  // else the task fails
}

// queueTimeoutActions are the values of `then`: whether the task is requeued.
var queueTimeoutActions = []keyword[bool]{{"fail", false}, {"requeue", true}}

var queueTimeoutFields = fields[*queueTimeout]{
	"after": func(r *reader, q *queueTimeout, e entry) { q.after, _ = r.duration(e.value, false) },
	"then": func(r *reader, q *queueTimeout, e entry) {
		q.requeues, _ = readKeyword(r, e.value, queueTimeoutActions)
	},
}

// queueTimeout reads a queue timeout: a duration after which the task fails, or a
// mapping that names what happens then. A task's own one replaces the whole default.
func (r *reader) queueTimeout(n *yaml.Node) (q queueTimeout, ok bool) {
	if n.Kind != yaml.MappingNode {
		q.after, ok = r.duration(n, false)
		return q, ok
	}
	meant := ""
	es := r.entries(n, "{after: 1h, then: requeue}")
	queueTimeoutFields.read(r, &q, es, func(e entry) { meant = r.unknown(e, queueTimeoutFields.names, "") })
	if !has(es, "after") && meant != "after" {
		r.fault(n, "after is missing", "write after: with how long the task may wait")
	}
	return q, q.after > 0
}

// queueTimeoutOf writes a queue timeout that is set.
func queueTimeoutOf(p *dtaskv1.TaskPolicy) any {
	after := milliseconds(p.GetQueueTimeoutMs())
	if !p.GetQueueTimeoutRequeues() {
		return after
	}
	return object{"after": after, "then": keywordOf(queueTimeoutActions, true)}
}

// queueTimeoutProblem checks the queue timeout of a decoded policy.
func queueTimeoutProblem(p *dtaskv1.TaskPolicy) problem {
	least := int64(0)
	if p.GetQueueTimeoutRequeues() {
		least = 1
	}
	return durationProblem(p.GetQueueTimeoutMs(), least)
}
