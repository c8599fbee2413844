package fsm

// schedule makes an operation on schedules, most of them legal.
func (g *generator) schedule(s *State) Op {
	var all []*Schedule
	for x := range s.Schedules() {
		all = append(all, x)
	}
	if g.choose.one(20) { // mostly an unknown one
		return &DeleteSchedule{ID: ScheduleID(1 + g.choose(9)), IfVersion: uint32(max(0, g.choose(4)-1))}
	}
	if len(all) < 2 || g.choose.one(5) {
		return g.setSchedule(s)
	}
	x := all[g.choose(len(all))]
	id := x.ID
	if g.choose.one(20) {
		id = ScheduleID(g.choose(9))
	}
	switch g.choose(12) {
	case 0:
		if g.choose.one(2) {
			return &DeleteSchedule{ID: id}
		}
		return &PauseSchedule{ID: ScheduleID(1 + g.choose(5)), Reason: g.text(), By: "alice", AtMS: g.at(s)}
	case 1, 2:
		return &ResumeSchedule{ID: ScheduleID(1 + g.choose(5)), AtMS: g.at(s)}
	case 3, 4, 5:
		return g.runSchedule(id, s)
	default:
		return g.fire(id, x)
	}
}

func (g *generator) fire(id ScheduleID, x *Schedule) Op {
	o := &Fire{
		Schedule: id, Version: x.Version, TickMS: x.AfterMS + 1 + int64(g.choose(20)), Civil: x.LastCivil + 1 + int64(g.choose(5)),
		Decision: []Decision{TickRuns, TickRuns, TickRuns, TickSkippedOpen, TickSkippedMissed, 0, numDecisions}[g.odd(5, 7)],
	}
	switch g.choose(12) {
	case 0: // again, as a leader would that does not know that it was fired
		o.TickMS = x.AfterMS
	case 1:
		o.TickMS = int64(g.choose(int(x.AfterMS) + 1))
	case 2:
		o.Version++
	case 3: // a leader with other time zones
		o.Civil = x.LastCivil - int64(g.choose(2))
	}
	if o.Decision != TickRuns {
		o.Earlier = uint32(g.choose(4))
	}
	return o
}

func (g *generator) runSchedule(id ScheduleID, s *State) Op {
	o := &RunSchedule{Schedule: id, Key: []string{"r0", "r1", "r2", "r3", "k1", ""}[g.odd(5, 6)], KeyExpires: int64(g.choose(1000)), Digest: [16]byte{byte(id)}}
	if g.choose.one(2) {
		o.TickMS, o.PreviousMS = 1+int64(g.choose(int(s.now)+1)), int64(g.choose(5))
	}
	if g.choose.one(30) {
		o.TickMS = -1
	}
	return o
}

// setSchedule makes a schedule of an upload, mostly one that is complete.
func (g *generator) setSchedule(s *State) Op {
	o := &SetSchedule{
		Upload: g.job(s), By: "alice", AtMS: g.at(s), Digest: [16]byte{byte(g.choose(2)), 2}, Recurrence: g.recurrence(),
		ScheduleRules: ScheduleRules{Overlap: Overlap(1 + g.odd(5, 6)), Missed: MissedRule(1 + g.odd(3, 4)), WithinMS: 5},
	}
	if o.Missed == MissedSkip {
		o.WithinMS = int64(g.odd(1, 2))
	}
	for id := range s.Uploads() {
		if j := s.jobs.get(id); j.records.n == j.total && j.needs() == 0 {
			o.Upload = id
		}
	}
	if j := s.jobs.get(o.Upload); j != nil {
		o.Sum = j.sum + uint32(g.odd(1, 2))
	}
	if g.choose.one(4) {
		o.Owner = g.identityID(s)
	}
	if g.choose.one(4) {
		o.IfVersion = uint32(g.choose(4))
	}
	return o
}

func (g *generator) recurrence() Recurrence {
	return []Recurrence{
		{Cron: []string{"30 2 * * *"}, Zone: "Europe/Berlin", Ordered: true},
		{EveryMS: 1000},
		{At: []string{"2026-12-25T08:00"}, Ordered: true},
		{},
		{EveryMS: -1},
	}[g.odd(3, 5)]
}
