package fsm

// queue makes an operation on queues, or moves a job.
func (g *generator) queue(s *State) Op {
	name := []string{"etl", "ml", DefaultQueue, "web", "a b"}[g.odd(4, 5)]
	version := uint32(0)
	if g.choose.one(4) {
		version = uint32(g.choose(4))
	}
	switch g.choose(8) {
	case 0, 1:
		return &DeleteQueue{Name: name, IfVersion: version}
	case 2, 3, 4:
		_, at := g.findRef(s, Blocked, Scheduled, Pending, Assigned)
		return &MoveJob{Job: at.Job, Queue: name, Precondition: g.precondition()}
	}
	o := &SetQueue{Name: name, IfVersion: version, By: "alice", AtMS: g.at(s), QueueSettings: QueueSettings{
		Weight:     []uint32{1, 2, MaxQueueWeight, 0, MaxQueueWeight + 1}[g.odd(3, 5)],
		MaxRunning: uint32(g.choose(3)),
		Max:        [][]Resource{nil, {{"cpu", 1000}}, {{"cpu", 1000}, {"gpu", 1}}, {{"gpu", 1}, {"cpu", 1}}, {{"cpu", 0}}}[g.odd(3, 5)],
		Require:    [][]Label{nil, {{"pool", "etl"}}, {{"", "x"}}, {{"a", "1"}, {"a", "2"}}}[g.odd(2, 4)],
	}}
	if g.choose.one(3) {
		o.Rate, o.PeriodMS, o.Burst = 500, []uint32{1000, 0, MaxRatePeriodMS + 1}[g.odd(1, 3)], uint32(1+g.odd(2, 3)-1)
	}
	if g.choose.one(3) {
		o.Pause = QueuePause{AtMS: g.at(s), By: "bob", Reason: g.text()}
	}
	return o
}
