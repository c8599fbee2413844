package spec

import (
	"fmt"
	"maps"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/array"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// jobBuilder collects the fields of a job.
type jobBuilder struct {
	header    *dtaskv1.JobHeader
	defaults  policy
	tasks     []taskBuilder
	listed    bool // the field tasks exists
	policies  policyTable
	outputs   outputSet
	tolerated int64 // max_failures in thousandths of a percent of the ordinary tasks; 0 = it is a number
	// fields is jobFields. The functions that read tasks can't name that table, which
	// refers to them: its initialization would be a cycle.
	fields fields[*jobBuilder]
}

// job reads the mapping job.
func (r *reader) job(n *yaml.Node) *dtaskv1.JobSpec {
	es := r.entries(n, "job: {name: …, tasks: […]}")
	if es == nil {
		return nil
	}
	j := &jobBuilder{
		header: &dtaskv1.JobHeader{
			Priority:  dtaskv1.Priority_PRIORITY_NORMAL,
			OnFailure: dtaskv1.OnFailure_ON_FAILURE_STOP,
			Params:    r.values,
		},
		defaults: builtIn(),
		fields:   jobFields,
	}
	meant := map[string]bool{}
	jobFields.read(r, j, inOrder(es), func(e entry) {
		elsewhere := ""
		if _, known := policyFields[e.key]; known {
			elsewhere = "put it under job.defaults, or into a task"
		} else if _, known := taskFields[e.key]; known {
			elsewhere = "it belongs to a task"
		} else if e.key == "schedule" {
			elsewhere = "put it beside job:, at the top level of the file"
		}
		meant[r.unknown(e, jobFields.names, elsewhere)] = true
	})
	r.startAfter(n, j.header, es)
	r.owner(n, j.header, es)
	r.override(n, j.header)
	if !has(es, "name") && !meant["name"] && r.opt.Name == "" {
		r.fault(n, "name is missing", "write name: with 1–63 of a–z, A–Z, 0–9, -, _ and .")
	}
	if !j.listed && !meant["tasks"] {
		r.fault(n, "tasks is missing", "write tasks: with at least one")
	}
	order := r.graph(j.tasks)
	if r.total > 0 {
		return nil
	}
	return j.spec(order)
}

// owner sets the default owner if the file has none.
func (r *reader) owner(n *yaml.Node, h *dtaskv1.JobHeader, es []entry) {
	if has(es, "owner") || r.opt.Owner == "" {
		return
	}
	r.enter("owner")
	r.holds(n, ownerProblem(r.opt.Owner))
	r.leave()
	h.Owner = r.opt.Owner
}

// override sets what the options have instead of the file.
func (r *reader) override(n *yaml.Node, h *dtaskv1.JobHeader) {
	if r.opt.Name != "" {
		r.enter("name")
		r.holds(n, nameProblem(r.opt.Name))
		r.leave()
		h.Name = r.opt.Name
	}
	if r.opt.Priority != 0 {
		h.Priority = r.opt.Priority
	}
	if len(r.opt.Labels) == 0 {
		return
	}
	r.enter("labels")
	labels := maps.Clone(h.GetLabels())
	if labels == nil {
		labels = make(map[string]string, len(r.opt.Labels))
	}
	for _, name := range namesOf(r.opt.Labels) {
		r.holds(n, labelProblem(name, r.opt.Labels[name]))
		labels[name] = r.opt.Labels[name]
	}
	r.holds(n, labelsProblem(len(labels)))
	r.leave()
	h.Labels = labels
}

// labelProblem checks a label that is not in a file.
func labelProblem(name, value string) problem {
	for _, p := range []problem{labelNameProblem(name), labelValueProblem(value), plainText(value)} {
		if p.bad() {
			return p
		}
	}
	return problem{}
}

func has(es []entry, key string) bool {
	for _, e := range es {
		if e.key == key {
			return true
		}
	}
	return false
}

func readTasks(r *reader, j *jobBuilder, e entry) {
	j.listed = true
	nodes, ok := r.items(e.value, "tasks: [{id: hello, run: echo hello}]")
	if !ok {
		return
	}
	if len(nodes) == 0 {
		r.fault(e.value, "is empty", "list at least one task")
		return
	}
	if len(nodes) > MaxListedTasks {
		r.fault(e.value, fmt.Sprintf("lists %s tasks", count(len(nodes))),
			fmt.Sprintf("at most %s; send larger jobs through the streaming API", count(MaxListedTasks)))
		return
	}
	j.tasks = make([]taskBuilder, len(nodes))
	ordinary := false
	for i, n := range nodes {
		r.enterItem(i)
		r.readTask(j, &j.tasks[i], deref(n))
		r.task = ""
		r.leave()
		ordinary = ordinary || !j.tasks[i].cleanup
	}
	if !ordinary {
		r.fault(e.value, "has only cleanup tasks", "list at least one task without finally: true")
	}
}

// spec assembles the job with its tasks in the given order.
func (j *jobBuilder) spec(order []int32) *dtaskv1.JobSpec {
	place, next := make([]uint32, len(order)), uint64(0)
	for _, i := range order {
		place[i] = uint32(min(next, 2*MaxTasks)) //nolint:gosec // too many are refused
		next += tasksOf(j.tasks[i].array)
	}
	tasks := make([]*dtaskv1.TaskSpec, len(order))
	ordinary := int64(0)
	for at, i := range order {
		t := &j.tasks[i]
		tasks[at] = &dtaskv1.TaskSpec{Id: t.id, Policy: t.policy, Body: t.body, Array: t.array}
		tasks[at].Dependencies, tasks[at].Conditions = t.resolved(place)
		if !t.cleanup {
			ordinary += int64(array.Tasks(tasks[at])) //nolint:gosec // below 2^33 each
		}
	}
	if j.tolerated > 0 {
		j.header.MaxFailures = uint32(min(ordinary, MaxTasks) * j.tolerated / 100_000) //nolint:gosec // at most all tasks
	}
	j.header.Policies = j.policies.list
	return &dtaskv1.JobSpec{Header: j.header, Tasks: tasks}
}

// policyTable keeps each policy once, up to the size limit of a header.
type policyTable struct {
	list  []*dtaskv1.TaskPolicy
	size  int // of all, in bytes
	known map[string]uint32
	plain map[string]uint32 // by type: policies of tasks without policy fields
	key   []byte
}

// full reports that the policies exceed the size limit of a header.
func (t *policyTable) full() bool { return t.size > MaxHeaderBytes }

// index returns the index of a policy in the list.
func (t *policyTable) index(p *policy, d TaskDefaults, filled bool) uint32 {
	if t.full() {
		return 0
	}
	if t.known == nil {
		t.known, t.plain = map[string]uint32{}, map[string]uint32{}
	}
	if !p.own {
		if i, known := t.plain[p.kind]; known {
			return i
		}
	}
	made := p.proto(d, filled)
	// Can't fail for a message that this package created.
	t.key, _ = proto.MarshalOptions{Deterministic: true}.MarshalAppend(t.key[:0], made)
	i, known := t.known[string(t.key)]
	if !known {
		i = uint32(len(t.list)) //nolint:gosec // at most MaxListedTasks
		t.size += len(t.key)
		t.list, t.known[string(t.key)] = append(t.list, made), i
	}
	if !p.own {
		t.plain[p.kind] = i
	}
	return i
}
