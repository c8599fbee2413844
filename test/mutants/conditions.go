package mutants

// inConditions returns the mistakes in the conditions of dependencies.
func inConditions() []Mutant {
	return []Mutant{
		{
			Name:   "a-handler-of-a-failure-undoes-it",
			Edits:  []Edit{{"fsm/outcome.go", "when == WhenEnded || when == WhenTolerated", "when != WhenCompleted"}},
			Caught: []Checker{{Package: "./fsm", Run: "TestATaskCancelledBecause|ReferenceModel"}},
		},
		{
			Name:   "a-stopping-job-forgets-its-handlers",
			Edits:  []Edit{{"fsm/op_fail.go", "j.stopping && !j.isCleanup(i) && !j.outlivesStop(i)", "j.stopping && !j.isCleanup(i)"}},
			Caught: []Checker{{Package: "./fsm", Run: "TestAStoppingJobRunsItsHandlers|ReferenceModel"}},
		},
		{
			Name:   "snapshots-forget-what-was-skipped",
			Edits:  []Edit{{"fsm/snapshot.go", `e.byte(byte(r.cause))`, `e.byte(byte(r.cause & 1))`}},
			Caught: []Checker{snapshots},
		},
	}
}
