package spec

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// task holds one task to the rules that need the header only, and returns its
// encoded size.
func (c *Checker) task(index int, t *dtaskv1.TaskSpec) int {
	place := taskPlace{c: c, id: t.GetId(), index: index}
	place.refuse("id", idProblem(t.GetId()))
	n, alone := proto.Size(t), 0
	for _, it := range t.GetArray().GetItems() {
		alone += len(it)
	}
	if t.GetArray().GetPart() > 0 {
		if len(t.GetDependencies()) > 0 || t.GetBody() != nil || t.GetPolicy() != 0 {
			place.refuse("array", problem{"is a further part of an array with a body, dependencies or a policy", "send id, items and part only"})
		}
		return n
	}
	if alone = n - alone - 4*len(t.GetArray().GetItems()); alone > MaxTaskBytes {
		place.refuse("", problem{
			fmt.Sprintf("has %s with its payload, inputs and dependencies", bytesText(alone)),
			fmt.Sprintf("at most %s; put long lists into a file, or gather in steps", bytesText(MaxTaskBytes)),
		})
	}
	place.dependencies(t.GetDependencies())
	policies := c.header.GetPolicies()
	if int64(t.GetPolicy()) >= int64(len(policies)) {
		place.refuse("policy", problem{fmt.Sprintf("there is no policy %d", t.GetPolicy()), fmt.Sprintf("send an index below %d", len(policies))})
		place.body(t.GetBody(), nil)
		return n
	}
	place.body(t.GetBody(), policies[t.GetPolicy()])
	place.refuse(arrayProblem(t.GetArray(), t.GetBody(), policies[t.GetPolicy()]))
	return n
}

// taskPlace words where a fault of a task is, only when there is one.
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

// dependencies names the first fault of the list only: one that is out of order
// usually is so throughout.
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

// body checks what is run. A policy that is nil is not known, and its type
// neither.
func (at taskPlace) body(b *dtaskv1.TaskBody, p *dtaskv1.TaskPolicy) {
	ways := 0
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
		at.refuse("", problem{fmt.Sprintf("has %d of command, run and type", ways), "send exactly one"})
	}
	for i, in := range b.GetInputs() {
		if q := pathProblem(in); q.bad() {
			at.refuse(fmt.Sprintf("inputs[%d]", i), q)
		}
	}
	if b.GetOutput() != "" {
		at.refuse("output", pathProblem(b.GetOutput()))
	}
	switch pure := p.GetReuseMs() != 0; {
	case pure:
		at.refuse("reuse.key", reuseKeyProblem(b.GetReuseKey()))
	case b.GetReuseKey() != "":
		at.refuse("reuse.key", problem{"is set in a task that is not pure", "send it with a policy that has reuse_ms"})
	}
	at.refuse("payload", payloadProblem(len(b.GetPayload()), at.c.opt.MaxPayload))
}
