package spec

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A PayloadTask is a task without an array whose body has only a payload.
// Large jobs consist of such tasks; they are checked without decoding their
// bodies.
type PayloadTask struct {
	ID           string // kept until the job is checked
	Policy       uint32
	Dependencies []uint32
	Conditions   []dtaskv1.Condition
	Payload      []byte
	BodySize     int // of the encoded body, in bytes
}

// checkedTask is a task as the rules see it.
type checkedTask struct {
	id           string
	policy       uint32
	dependencies []uint32
	conditions   []dtaskv1.Condition
	size         int // encoded as a TaskSpec, in bytes
	payload      []byte
	body         *dtaskv1.TaskBody  // nil if it has only the payload
	array        *dtaskv1.ArraySpec // may be nil
}

func checkedSpec(t *dtaskv1.TaskSpec) checkedTask {
	return checkedTask{
		id: t.GetId(), policy: t.GetPolicy(), dependencies: t.GetDependencies(), conditions: t.GetConditions(), size: proto.Size(t),
		payload: t.GetBody().GetPayload(), body: t.GetBody(), array: t.GetArray(),
	}
}

func (t PayloadTask) checked() checkedTask {
	return checkedTask{id: t.ID, policy: t.Policy, dependencies: t.Dependencies, conditions: t.Conditions, size: t.size(), payload: t.Payload}
}

// size returns the size of the task encoded as a TaskSpec.
func (t PayloadTask) size() int {
	const tag = 1
	n := tag + protowire.SizeBytes(t.BodySize)
	if t.ID != "" {
		n += tag + protowire.SizeBytes(len(t.ID))
	}
	if t.Policy > 0 {
		n += tag + protowire.SizeVarint(uint64(t.Policy))
	}
	if len(t.Dependencies) > 0 {
		list := 0
		for _, d := range t.Dependencies {
			list += protowire.SizeVarint(uint64(d))
		}
		n += tag + protowire.SizeBytes(list)
	}
	if len(t.Conditions) > 0 {
		n += tag + protowire.SizeBytes(len(t.Conditions))
	}
	return n
}

// task checks the rules of a single task.
func (c *Checker) task(t *checkedTask) {
	place := taskPlace{c: c, id: t.id, index: c.tasks}
	place.refuse("id", idProblem(t.id))
	if t.array.GetPart() > 0 {
		if len(t.dependencies) > 0 || len(t.conditions) > 0 || t.body != nil || t.policy != 0 {
			place.refuse("array", problem{"has a body, dependencies or a policy in a further part", "send only id, items and part"})
		}
		return
	}
	size := t.size - 4*len(t.array.GetItems())
	for _, it := range t.array.GetItems() {
		size -= len(it)
	}
	if size > MaxTaskBytes {
		place.refuse("", problem{
			fmt.Sprintf("has %s with its payload, inputs and dependencies", bytesText(size)),
			fmt.Sprintf("must have at most %s: put long lists into a file, or gather in steps", bytesText(MaxTaskBytes)),
		})
	}
	place.dependencies(t.dependencies)
	place.conditions(t.conditions, len(t.dependencies))
	policies := c.header.GetPolicies()
	if int64(t.policy) >= int64(len(policies)) {
		place.refuse("policy", problem{fmt.Sprintf("unknown policy %d", t.policy), fmt.Sprintf("send an index below %d", len(policies))})
		place.body(t, nil)
		return
	}
	place.body(t, policies[t.policy])
	if t.body.GetScheduled() {
		c.usesRun = true
		if c.header.GetRun() == nil && !c.opt.Scheduled {
			place.refuse("", problem{"has an expression of the run of a schedule, but the job is not one", "set a schedule (dtaskctl schedule set), or leave the expression out"})
		}
	}
	place.refuse(templateProblem(t.array, t.body, t.payload, policies[t.policy]))
}

// policyOf returns the policy of a task; nil if it is unknown.
func (c *Checker) policyOf(t *checkedTask) *dtaskv1.TaskPolicy {
	if list := c.header.GetPolicies(); int64(t.policy) < int64(len(list)) {
		return list[t.policy]
	}
	return nil
}

// taskPlace is the location of a task's faults, which is formatted only if
// there is a fault.
type taskPlace struct {
	c     *Checker
	id    string
	index int
}

func (at taskPlace) refuse(field string, p problem) {
	if !p.bad() {
		return
	}
	where := fmt.Sprintf("job.tasks[%d]", at.index)
	switch {
	case at.id != "" && !idProblem(at.id).bad():
		where = taskWhere(at.id, field)
	case field != "":
		where += "." + field
	}
	at.c.refuse(where, p)
}

// dependencies reports only the first fault of the list: a list that is out of
// order usually is so throughout.
func (at taskPlace) dependencies(list []uint32) {
	for i, d := range list {
		if int64(d) >= int64(at.index) {
			at.refuse("dependencies", problem{fmt.Sprintf("%d is not below the task's own index %d", d, at.index), "send tasks after those that they depend on"})
			return
		}
		if i > 0 && d <= list[i-1] {
			at.refuse("dependencies", problem{fmt.Sprintf("%d follows %d", d, list[i-1]), "send indexes in ascending order, each once"})
			return
		}
	}
}

// conditions checks the conditions of n dependencies.
func (at taskPlace) conditions(list []dtaskv1.Condition, n int) {
	if len(list) > 0 && len(list) != n {
		at.refuse("conditions", problem{fmt.Sprintf("has %d, and dependencies has %d", len(list), n), "send one for each, or none"})
		return
	}
	for _, c := range list {
		if c < dtaskv1.Condition_CONDITION_UNSPECIFIED || c > dtaskv1.Condition_CONDITION_FAILED {
			at.refuse("conditions", problem{fmt.Sprintf("unknown condition %d", c), "send completed, ended, tolerated or failed"})
			return
		}
	}
}

// body checks what is run. p is nil if the task's policy is unknown.
func (at taskPlace) body(t *checkedTask, p *dtaskv1.TaskPolicy) {
	b, ways := t.body, 0
	if len(b.GetCommand()) > 0 {
		ways++
		at.refuse("command", commandProblem(b.GetCommand()))
	}
	if b.GetRun() != "" {
		ways++
		at.refuse("run", runProblem(b.GetRun()))
	}
	if p.GetType() != "" {
		ways++
	}
	if ways > 1 || ways == 0 && p != nil {
		at.refuse("", problem{fmt.Sprintf("must have exactly one of command, run and type, but has %d", ways), "send one"})
	}
	for i, in := range b.GetInputs() {
		if q := pathProblem(in); q.bad() {
			at.refuse(fmt.Sprintf("inputs[%d]", i), q)
		}
	}
	if b.GetOutput() != "" {
		at.refuse("output", fileProblem(b.GetOutput()))
		at.refuse("output", at.c.outputs.add(t.id, b.GetOutput(), t.array))
	}
	if b.GetCwd() != "" {
		at.refuse("cwd", absoluteProblem(b.GetCwd()))
	}
	if b.GetStdin() != "" {
		at.refuse("stdin", fileProblem(b.GetStdin()))
	}
	if at.c.opt.Readable {
		at.readable(b)
	}
	switch pure := p.GetReuseMs() != 0; {
	case pure:
		at.refuse("reuse.key", reuseKeyProblem(b.GetReuseKey()))
	case b.GetReuseKey() != "":
		at.refuse("reuse.key", problem{"must not be set without reuse_ms", "send a policy with reuse_ms, or leave it out"})
	}
	at.refuse("payload", payloadProblem(len(t.payload), at.c.opt.MaxPayload))
}

// readable checks the inputs, the output and the standard input of a task for URLs that
// no worker supports. What begins with an expression is known to the worker only.
func (at taskPlace) readable(b *dtaskv1.TaskBody) {
	for i, in := range b.GetInputs() {
		if p := schemeProblem(in); p.bad() {
			at.refuse(fmt.Sprintf("inputs[%d]", i), p)
		}
	}
	at.refuse("output", schemeProblem(b.GetOutput()))
	at.refuse("stdin", schemeProblem(b.GetStdin()))
}

func schemeProblem(s string) problem {
	scheme := taskbody.Scheme(s)
	if taskbody.Supported(scheme) {
		return problem{}
	}
	urls := make([]string, 0, 1)
	for _, known := range taskbody.Schemes() {
		urls = append(urls, known+":// URLs")
	}
	return problem{
		fmt.Sprintf("unsupported scheme in %s", quote(s)),
		fmt.Sprintf("workers read and write paths and %s only; copy %s:// data to or from a file in a task of its own", strings.Join(urls, ", "), scheme),
	}
}
