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
			Name:   "cleanup-tasks-are-not-on-the-critical-path",
			Edits:  []Edit{{"spec/critical_path.go", "		if n.cleanup && lastOrdinary >= 0 {", "		if n.cleanup && lastOrdinary > i {"}},
			Caught: []Checker{{Package: "./spec", Run: "TestTheCriticalPathIsTheLongestOfAllChains"}},
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
