package mutants

// inReservations returns the mistakes by which a large task never gets a worker.
func inReservations() []Mutant {
	return []Mutant{
		{
			Name:   "the-busiest-worker-is-kept-for-a-large-task",
			Edits:  []Edit{{"scheduler/reservation.go", "compareShares(part, 1, least, 1) < 0", "compareShares(part, 1, least, 1) > 0"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestTheOldestLargeTask"}},
		},
		{
			Name:   "a-worker-with-capacity-for-the-first-queue-is-kept-for-the-second",
			Edits:  []Edit{{"scheduler/reservation.go", " || slices.Contains(taken, w)", ""}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestTheSecondQueueThatWants"}},
		},
		{
			Name:   "a-queue-whose-task-fitted-a-worker-is-not-tried-again",
			Edits:  []Edit{{"scheduler/scheduler.go", "if (s.unkept || s.fitting) &&", "if s.unkept &&"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestTheSecondQueueThatWants"}},
		},
		{
			Name:   "a-worker-is-kept-for-a-later-large-task",
			Edits:  []Edit{{"scheduler/reservation.go", "r.oldest < best.oldest) && s.someUsable", "r.oldest > best.oldest) && s.someUsable"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestTheOldestLargeTask"}},
		},
		{
			Name:   "a-large-task-loses-its-turn-while-a-worker-has-capacity",
			Edits:  []Edit{{"scheduler/reservation.go", "if k.ready != nil && (r == nil ||", "if k.ready != nil && r != nil && (r == nil ||"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestLargeTasksOfTwoQueues"}, {Package: "./scheduler", Run: "TestTheNextLargeTask"}},
		},
		{
			Name:   "a-queue-that-wants-a-worker-overlooks-those-that-join",
			Edits:  []Edit{{"scheduler/worker.go", "s.unkept = true // it may be kept for a task", ""}, {"scheduler/worker.go", "s.unkept = s.unkept || accepting", ""}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestAQueueThatWantsAWorker"}},
		},
		{
			Name:   "a-queue-whose-task-waits-for-a-blocked-shape-is-not-passed-over",
			Edits:  []Edit{{"scheduler/wait_part.go", "s.passOver(f.queue)", ""}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestALargeTaskOfAShape"}},
		},
		{
			Name:   "a-paused-queue-whose-shape-is-blocked-is-not-passed-over",
			Edits:  []Edit{{"scheduler/wait_part.go", "s.passOver(p.queue)", ""}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestALargeTaskStartsAfterItsQueue"}},
		},
		{
			Name:   "a-queue-that-is-set-again-loses-its-worker",
			Edits:  []Edit{{"scheduler/queue.go", "if q.limit != to.MaxRunning ||", "if q.set || q.limit != to.MaxRunning ||"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestALargeTaskStartsAlthoughItsQueue"}},
		},
		{
			Name:   "quotas-are-saved-for-no-task",
			Edits:  []Edit{{"scheduler/saving.go", "if q.saving != nil || len(q.max) == 0 {", "if q.saving != nil || len(q.max) >= 0 {"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestALargeTaskStartsBesideSmallOnes"}},
		},
		{
			Name:   "a-task-above-its-quota-holds-its-queue-back",
			Edits:  []Edit{{"scheduler/saving.go", "!q.leaves(c.shape, nil) && q.mayAllow(c.shape)", "!q.leaves(c.shape, nil)"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestATaskThatCanNeverStart"}},
		},
		{
			Name:   "quota-is-not-saved-from-tasks-of-the-same-class",
			Edits:  []Edit{{"scheduler/saving.go", " && q.saving.priority == p {", " {"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestQuotaIsSavedFromTasksOfTheSameClass"}},
		},
		{
			Name:   "quota-remains-saved-for-a-task-that-was-cancelled",
			Edits:  []Edit{{"scheduler/saving.go", " && !s.isStale(r.front(), valid)\n", "\n"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestQuotaIsSavedNoLonger"}},
		},
		{
			Name:   "what-quota-is-saved-for-waits-in-its-part",
			Edits:  []Edit{{"scheduler/listed_wait.go", "		s.unparkSaved(q.saving.ready)\n", ""}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestALargeTaskStartsBesideSmallOnes"}},
		},
		{
			Name:   "a-worker-is-kept-for-a-cancelled-task",
			Edits:  []Edit{{"scheduler/scheduler.go", "if len(s.reservations) == 0 || !s.dropReservations(valid) {", "if len(s.reservations) == 0 || valid != nil {"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestAWorkerIsKeptOnlyWhile"}},
		},
	}
}
