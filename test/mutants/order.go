package mutants

// inOrder returns the mistakes by which tasks start in another order than docs/scheduling.md
// promises, and plans are wrong or have effects, that the simulation finds.
func inOrder() []Mutant {
	simulation := []Checker{{Package: "./coordinator/sequencer", Run: "TestNothingAcknowledgedIsLostWhateverHappens$", Args: []string{"-sim.seed=2000", "-sim.runs=300"}}}
	return []Mutant{
		{
			Name:   "all-queues-have-the-same-weight",
			Edits:  []Edit{{"scheduler/flow.go", "weight: q.weight, served: q.served", "weight: 1, served: q.served"}},
			Caught: simulation,
		},
		{
			Name:   "only-slots-count-in-a-share",
			Edits:  []Edit{{"scheduler/share.go", "compareShares(s, 1, best, 1) > 0", "best.total == 0"}},
			Caught: simulation,
		},
		{
			Name:   "a-queue-starts-its-oldest-task-at-every-32nd-start",
			Edits:  []Edit{{"scheduler/flow.go", "const agedStart = 16", "const agedStart = 32"}},
			Caught: simulation,
		},
		{
			Name:   "a-start-that-overtakes-takes-the-turn-by-age",
			Edits:  []Edit{{"scheduler/overtake.go", "q.turn = min(q.turn+1, agedStart-1)", "q.turn = (q.turn + 1) % agedStart"}},
			Caught: simulation,
		},
		{
			Name:   "low-priorities-are-first",
			Edits:  []Edit{{"scheduler/flow.go", "	for p := Urgent; p >= Low; p-- {\n		h := &q.ready[p]\n", "	for x := Low; x <= Urgent; x++ {\n		p := x\n		h := &q.ready[p]\n"}},
			Caught: simulation,
		},
		{
			Name:   "a-retried-task-may-start-as-it-was-queued-before",
			Edits:  []Edit{{"coordinator/sequencer/sequencer.go", "	s.dispatch.supersedeRevived(b, b.fx.RevivedTasks)\n", ""}},
			Caught: simulation,
		},
		{
			Name:   "what-waits-is-lost-when-others-of-its-job-are-retried",
			Edits:  []Edit{{"coordinator/sequencer/reorder.go", "	if together {\n		d.sched.SupersedeJob(uint64(runs[0].Job), others)", "	if together {\n		d.sched.SupersedeJob(uint64(runs[0].Job), others[:0])"}},
			Caught: simulation,
		},
		{
			Name:   "a-task-with-attempts-was-not-ready-when-it-ended",
			Edits:  []Edit{{"fsm/op_revive.go", "past == 0 || past != j.records.at(i).note", "past == 0"}},
			Caught: []Checker{{Package: "./fsm", Run: "TestRevivedTasksAreThose"}},
		},
		{
			Name:   "a-plan-resumes-the-queue-of-its-job",
			Edits:  []Edit{{"coordinator/sequencer/planner.go", "		p.queue.Paused = false\n", "		p.queue.Paused, q.Pause = false, fsm.QueuePause{}\n"}},
			Caught: simulation,
		},
		{
			Name:   "a-plan-ignores-what-its-queue-requires",
			Edits:  []Edit{{"coordinator/sequencer/planner.go", "		x.demand.Labels = append(x.demand.Labels, required...)\n", "		_ = required\n"}},
			Caught: simulation,
		},
		{
			Name:   "a-plan-runs-what-only-runs-after-a-failure",
			Edits:  []Edit{{"coordinator/sequencer/planner.go", "Skipped: t.Skipped,", "Skipped: false,"}},
			Caught: simulation,
		},
	}
}
