package mutants

// inPlan returns the mistakes by which a plan is wrong.
func inPlan() []Mutant {
	return []Mutant{
		{
			Name:   "a-forecast-gives-no-slot-back",
			Edits:  []Edit{{"scheduler/forecast/forecast.go", "			f.s.Release(e.assignment.Worker, e.assignment.Class, e.assignment.Priority)\n", ""}},
			Caught: []Checker{{Package: "./scheduler/forecast", Run: "TestAForecastIsTheScheduleByHand"}},
		},
		{
			Name:   "a-forecast-ignores-max-parallel",
			Edits:  []Edit{{"scheduler/forecast/forecast.go", "			d.Limit = u.Limit\n", "			d.Limit = 0\n"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestAPlannedMakespanIsThatOfTheRun"}, {Package: "./scheduler/forecast", Run: "TestAForecastIsTheScheduleByHand"}},
		},
		{
			Name:   "a-forecast-frees-the-slots-of-all-workers-in-random-order",
			Edits:  []Edit{{"scheduler/forecast/forecast.go", "	if f.order != byWorker {\n		return f.random", "	if f.order < orders {\n		return f.random"}},
			Caught: []Checker{{Package: "./scheduler/forecast", Run: "TestSlotsOfAWorkerMayBecomeFreeBeforeThoseOfAnother"}},
		},
		{
			Name:   "a-limit-bounds-no-class-of-a-plan",
			Edits:  []Edit{{"coordinator/sequencer/planner.go", "if most := p.limit(use).Running; most > 0 {", "if most := p.limit(use).Running; most == 0 {"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestAPlanSaysWhatAJobWouldWaitFor"}},
		},
		{
			Name:   "the-rate-of-a-limit-bounds-no-plan",
			Edits:  []Edit{{"coordinator/api/plan_bounds.go", "l.Rate > 0 && late > 0 {", "l.Rate > 0 && late < 0 {"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestAPlanSaysWhatAJobWouldWaitFor"}},
		},
		{
			Name:   "the-bound-of-a-limit-has-the-tasks-of-others",
			Edits:  []Edit{{"coordinator/api/plan_bounds.go", "			uses[use].add(p.takes[i], n)\n", "			for _, all := range uses {\n				all.add(p.takes[i], n)\n			}\n"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestTheBoundOfALimitIsAboutTheTasksThatUseIt"}},
		},
		{
			Name:   "a-follower-plans-from-a-stale-state",
			Edits:  []Edit{{"coordinator/api/methods.go", "r.GetConsistency(), s.confirmAnywhere)", "r.GetConsistency(), func(context.Context) error { return nil })"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestAFollowerPlansWithAllThatWasAcknowledged"}},
		},
		{
			Name:   "the-leader-plans",
			Edits:  []Edit{{"client/plan.go", "sparesLeader: true", "sparesLeader: false"}},
			Caught: []Checker{{Package: "./client", Run: "TestAPlanSparesTheLeader"}},
		},
		{
			Name:   "a-plan-takes-unknown-queues-and-limits",
			Edits:  []Edit{{"coordinator/api/plan.go", "	if err := j.checkNames(h); err != nil {", "	if err := j.checkNames(new(dtaskv1.JobHeader)); err != nil {"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestAPlanOfAJobWithAnUnknownQueueOrLimitFailsAsItsSubmission"}},
		},
		{
			Name:   "a-plan-does-not-locate-unknown-names",
			Edits:  []Edit{{"cli/plan.go", "				locateNames(err, args)\n", ""}},
			Caught: []Checker{{Package: "./cli", Run: "TestScripts/queues"}},
		},
		{
			Name:   "a-schedule-is-set-without-a-warning-about-its-tasks",
			Edits:  []Edit{{"cli/schedule_set.go", "				a.warnUnplaceable(ctx, c, s.Job)\n", ""}},
			Caught: []Checker{{Package: "./cli", Run: "TestScripts/schedules"}},
		},
		{
			Name:   "the-warning-about-tasks-ignores-their-queue",
			Edits:  []Edit{{"cli/unplaceable.go", ", Queue: h.GetQueue()", ""}},
			Caught: []Checker{{Package: "./cli", Run: "TestScripts/plan"}},
		},
		{
			Name:   "quotas-on-resources-that-no-worker-has-are-fine",
			Edits:  []Edit{{"cli/unplaceable.go", "w.GetResources()[name] > 0 })", "w.GetResources()[name] >= 0 })"}},
			Caught: []Checker{{Package: "./cli", Run: "TestScripts/queues"}},
		},
		{
			Name:   "cleanup-tasks-are-not-on-the-critical-path",
			Edits:  []Edit{{"spec/critical_path.go", "		if n.cleanup && lastOrdinary >= 0 {", "		if n.cleanup && lastOrdinary > i {"}},
			Caught: []Checker{{Package: "./spec", Run: "TestCleanupTasksComeAfter"}},
		},
		{
			Name: "a-plan-reads-the-runs-of-other-owners",
			Edits: []Edit{
				{"coordinator/api/past_runs.go", "Query: history.Query{Name: h.GetName(), Owner: h.GetOwner(), Namespaces", "Query: history.Query{Name: h.GetName(), Namespaces"},
				{"coordinator/api/past_runs.go", "		if job.GetOwner() != h.GetOwner() {", "		if job.GetOwner() == \"-\" {"},
			},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestRunTimesAreThoseOfEarlierRuns"}},
		},
	}
}
