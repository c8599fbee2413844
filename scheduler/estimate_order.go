package scheduler

// A simOrder restores what decides about the order of the tasks of a TaskView after each
// run of a simulation, which changes it.
type simOrder struct {
	flows  []simFlow
	queues []simShare
	starts uint64 // of this run
}

// A simFlow is what an owner held, and when its last start was.
type simFlow struct {
	flow   *flow
	held   usage
	served uint64
}

// A simShare is the same of a queue.
type simShare struct {
	queue  *queue
	held   usage
	served uint64
	turn   uint32
	saving *saving
}

// newSimOrder remembers the order of a view.
func newSimOrder(v *TaskView) simOrder {
	var o simOrder
	// unordered: each flow and queue is independent of the others
	for _, f := range v.flows {
		o.flows = append(o.flows, simFlow{f, f.held.clone(), f.served})
	}
	// unordered: likewise
	for _, q := range v.queues {
		o.queues = append(o.queues, simShare{q, q.held.clone(), q.served, q.turn, q.saving})
	}
	return o
}

// restore returns to the order of the view.
func (o *simOrder) restore() {
	o.starts = 0
	for i := range o.flows {
		x := &o.flows[i]
		x.flow.held.set(&x.held)
		x.flow.served = x.served
	}
	for i := range o.queues {
		x := &o.queues[i]
		x.queue.held.set(&x.held)
		x.queue.served, x.queue.turn, x.queue.saving = x.served, x.turn, x.saving
	}
}

// start counts the start of a task of a class.
func (o *simOrder) start(c *class, seq uint64) {
	o.starts++
	if x := c.flow.queue.saving; x != nil && x.first == c.first().id && x.seq == seq {
		c.flow.queue.saving = nil
	}
	c.flow.started(c, o.starts)
}

// end counts the end of an attempt of a class.
func (*simOrder) end(c *class) {
	if c.flow.held.slots > 0 && c.flow.queue.held.slots > 0 { // else it was assigned after the copy
		c.flow.held.remove(c)
		c.flow.queue.held.remove(c)
	}
}

// started counts a start of the copy of a flow, later than all before the copy: the numbers
// of starts of a scheduler are far below.
func (f *flow) started(c *class, number uint64) {
	q := f.queue
	f.held.add(c)
	q.held.add(c)
	f.served, q.served = 1<<63+number, 1<<63+number
	q.turn = (q.turn + 1) % agedStart
}
