package mutants

// inExplain returns the mistakes by which a task is explained wrongly.
func inExplain() []Mutant {
	caught := []Checker{{Package: "./scheduler", Run: "TestChangesAreSound"}}
	return []Mutant{
		{
			Name:   "tasks-ahead-do-not-compete",
			Edits:  []Edit{{"scheduler/trial.go", "		t.assign(a.class)\n", "		t.v.steps++\n"}},
			Caught: caught,
		},
		{
			Name:   "a-full-limit-is-no-obstacle-of-the-tasks-ahead",
			Edits:  []Edit{{"scheduler/trial_order.go", " || !t.v.ahead[k].class.mayStart() {", " {"}},
			Caught: caught,
		},
		{
			Name:   "a-place-in-a-queue-is-a-start",
			Edits:  []Edit{{"scheduler/change.go", "			elsewhere = true // it would", "			return true // it would"}},
			Caught: caught,
		},
		{
			Name:   "explain-names-workers-of-other-namespaces",
			Edits:  []Edit{{"coordinator/api/explain.go", "return w != nil && servesCaller(w, x.caller)", "return w != nil"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestWorkersOfOtherNamespaces"}},
		},
	}
}
