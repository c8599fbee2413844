package fsm

// limit makes an operation on limits.
func (g *generator) limit() Op {
	name := []string{"db", "tenant/*", "api", "a b", "x/y"}[g.odd(3, 5)]
	version := uint32(0)
	if g.choose.one(4) {
		version = uint32(g.choose(4))
	}
	if g.choose.one(3) {
		return &DeleteLimit{Name: name, IfVersion: version}
	}
	op := &SetLimit{Name: name, IfVersion: version, By: "alice", AtMS: int64(1 + g.choose(1000))}
	op.Running = uint32(g.choose(3))
	if g.choose.one(2) {
		op.Rate, op.PeriodMS, op.Burst = uint32(1+g.choose(2)), []uint32{1000, 0, MaxRatePeriodMS + 1}[g.odd(1, 3)], uint32(1+g.choose(2))
	}
	return op
}
