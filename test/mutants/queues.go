package mutants

// inQueues returns the mistakes by which a tenant gets more or less than its share, or a task
// never starts.
func inQueues() []Mutant {
	model := Checker{Package: "./scheduler", Run: "TestEveryDecisionMatchesTheReferenceModel"}
	return []Mutant{
		{
			Name:   "a-lost-worker-keeps-its-share",
			Edits:  []Edit{{"scheduler/limit.go", "	c.flow.held.remove(c)\n	q.held.remove(c)\n	s.lowered", "	s.lowered"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestTheShareOfALostWorker"}, model},
		},
		{
			Name:   "no-start-is-by-age",
			Edits:  []Edit{{"scheduler/scheduler.go", "aged := q.turn == agedStart-1", "aged := false"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestEvery16thStart"}, {Package: "./scheduler", Run: "TestTheWaitForATurnByAgeIsBounded"}},
		},
		{
			Name:   "a-start-that-overtakes-is-not-counted",
			Edits:  []Edit{{"scheduler/overtake.go", "q.turn = min(q.turn+1, agedStart-1)", "q.turn = min(q.turn, agedStart-1)"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TurnByAgeAlthoughUrgent"}},
		},
		{
			Name:   "a-worker-starts-urgent-attempts-forever",
			Edits:  []Edit{{"worker/ready_queue.go", "q.turn = (q.turn + 1) % agedStart", "q.turn = 1 % agedStart"}},
			Caught: []Checker{{Package: "./worker", Run: "Sixteenth"}},
		},
		{
			Name:   "an-owner-that-waits-for-capacity-keeps-its-share",
			Edits:  []Edit{{"scheduler/flow.go", "		s.lowerWaits(f)\n", "		f.waits = f.waits[:len(f.waits):len(f.waits)]\n"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestAnOwnerThatWaitsForCapacity"}, model},
		},
		{
			Name:   "a-turn-by-age-finds-not-the-oldest-task-that-waits-for-capacity",
			Edits:  []Edit{{"scheduler/wait_part.go", "s.resumeWait(part.byAge.items[0].gateWait)", "s.resumeWait(part.byAge.items[len(part.byAge.items)-1].gateWait)"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestATurnByAgeStartsTheOldestTaskThatWaits"}},
		},
		{
			Name:   "a-release-returns-all-that-waits-to-the-order",
			Edits:  []Edit{{"scheduler/wait_part.go", "if len(q.open) >= s.maxOpen {", "if len(q.open) >= 0 {"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestAReleaseReturnsOnlyWhatCanStart"}},
		},
		{
			Name:   "what-waits-for-a-quota-returns-only-at-an-end",
			Edits:  []Edit{{"scheduler/listed_wait.go", "		if q.leaves(p.shape, q.saving) {", "		if len(p.byAge.items) > 0 && q.leaves(p.shape, q.saving) {"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestATaskThatBecomesReadyAfterTheLastEnd"}},
		},
		{
			Name:   "owners-have-no-shares",
			Edits:  []Edit{{"scheduler/flow.go", "return orderKey{share: s.fleet.dominant(&f.held), weight: 1, served: f.served}", "return orderKey{share: share{0, 1}, weight: 1, served: 0}"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestOwnersShareAPriority"}},
		},
		{
			Name:   "a-moved-job-counts-in-its-former-queue",
			Edits:  []Edit{{"coordinator/sequencer/queues.go", "	q.workers.moved(b, jobs)\n", ""}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestAMovedJob"}},
		},
		{
			Name:   "a-resumed-task-also-starts-in-the-queue-of-before",
			Edits:  []Edit{{"coordinator/sequencer/reorder.go", "	d.sched.SupersedeJob(uint64(id), nil)\n", ""}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestATaskThatIsResumedAfterItsJobMoved"}},
		},
		{
			Name:   "the-load-has-no-counts-of-queues",
			Edits:  []Edit{{"coordinator/load.go", "load.Queues = *counted", "_ = counted"}},
			Caught: []Checker{{Package: "./coordinator", Run: "TestTheLoadHasTheQueues"}},
		},
		{
			Name:   "a-new-term-shows-the-gauges-of-an-earlier-one",
			Edits:  []Edit{{"coordinator/sequencer/term.go", "	s.workers.gauge()\n", ""}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestTheGaugesAreOfTheTerm"}},
		},
		{
			Name:   "unused-queues-are-shown",
			Edits:  []Edit{{"internal/document/queue.go", "q.GetVersion() != 0 || q.GetPausedAt() != 0", "q != nil"}},
			Caught: []Checker{{Package: "./cli/show", Run: "TestOnlyTheQueueDefault"}},
		},
		{
			Name:   "a-task-that-has-started-loses-its-place-with-its-job",
			Edits:  []Edit{{"scheduler/superseded.go", "now.except[index] = before.of(index)", "now.except[index] = max(before.of(index), now.seq)"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestATaskThatIsNotSupersededWithItsJob"}, {Package: "./coordinator/sequencer", Run: "TestATaskThatHasStartedKeepsItsPlace"}},
		},
		{
			Name:   "a-superseded-task-returns-with-a-later-change-of-its-job",
			Edits:  []Edit{{"scheduler/superseded.go", "now.except[index] = before.of(index)", "now.except[index] = 0 * before.of(index)"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestATaskThatIsNotSupersededWithItsJob"}},
		},
		{
			Name:   "a-superseded-run-is-dropped-with-the-entries-of-after",
			Edits:  []Edit{{"scheduler/superseded.go", "		return uint32(min(uint64(e.n), j.seq-e.seq+1)), true", "		return e.n, true"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestATaskThatFollowsItsSupersededJob"}},
		},
	}
}
