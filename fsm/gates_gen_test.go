package fsm

import dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"

// jobTimes are the times of a header, and the key that bounds how many jobs run.
type jobTimes struct {
	startAt, startAfter, expires int64
	shared                       *dtaskv1.JobConcurrency
}

// times makes the times of a header: most jobs have none.
func (g *generator) times(s *State) (t jobTimes) {
	if g.choose.one(4) {
		t.startAt = s.now + int64(g.choose(40)) - 5
	}
	if g.choose.one(6) {
		t.startAfter = int64(1 + g.choose(30))
	}
	if g.choose.one(4) {
		t.expires = int64(1 + g.choose(60))
	}
	if g.choose.one(3) {
		t.shared = &dtaskv1.JobConcurrency{
			Key: []string{"a", "plan", "other", "", "\x00a"}[g.odd(3, 5)], Limit: []uint32{0, 1, 2, 1001}[g.odd(3, 4)],
			Overlap: []dtaskv1.ScheduleOverlap{0, 1, 2, 3, 3, 4, 5, 6, -1}[g.odd(7, 9)],
		}
	}
	if g.choose.one(40) {
		t.startAfter = -1
	}
	return t
}

// gate opens the gate of a job, or lets it expire: mostly one for which that is legal.
func (g *generator) gate(s *State) Op {
	id, expires := g.job(s), g.choose.one(2)
	for j := range s.Jobs(0) {
		due := j.Gated && !j.Waiting && j.StartMS() <= s.now && s.Holders(ConcurrencyKey(j.Header)) < ConcurrencyLimit(j.Header)
		if expires {
			due = j.ExpiryMS() != 0 && j.ExpiryMS() <= s.now
		}
		if due && !g.choose.one(4) {
			id = j.ID
		}
	}
	if expires {
		return &ExpireJob{Job: id, Reason: g.text()}
	}
	return &OpenGate{Job: id}
}
