package spec

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// A PlainTask is what is checked of a task that is no array, and whose body is a
// payload and nothing else. Large jobs consist of such.
type PlainTask struct {
	ID           string // kept until the job is checked
	Policy       uint32
	Dependencies []uint32
	Payload      int // its length
	Body         int // length of the encoded body
}

// Expect makes room for so many tasks, which are to be added.
func (c *Checker) Expect(tasks int) { c.ids.grow(tasks) }

// AddPlain checks the next task, at a fraction of what Add takes for its message. False
// means that it was not added: something about it only Add can judge, or word. Faults are
// kept for the next Add, which may be one of no tasks.
func (c *Checker) AddPlain(t PlainTask) bool {
	c.begin()
	if c.total > 0 || c.open != nil || c.ordinary < c.tasks || int64(t.Policy) >= int64(len(c.header.GetPolicies())) {
		return false
	}
	p := c.header.GetPolicies()[t.Policy]
	size := t.size()
	if p.GetType() == "" || p.GetFinally() || p.GetReuseMs() != 0 || t.Payload > c.opt.MaxPayload || size > MaxTaskBytes || idProblem(t.ID).bad() {
		return false
	}
	below := int64(-1)
	for _, d := range t.Dependencies {
		if int64(d) <= below || int64(d) >= int64(c.tasks) {
			return false
		}
		below = int64(d)
	}
	c.unique(t.ID)
	c.bytes += size
	c.ordinary++
	c.tasks++
	c.dependencies += len(t.Dependencies)
	return true
}

// size is that of the task as a TaskSpec.
func (t PlainTask) size() int {
	const tag = 1
	n := tag + protowire.SizeBytes(len(t.ID)) + tag + protowire.SizeBytes(t.Body)
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
	return n
}
