package mutants

// inRunning returns the mistakes in what is shown as running.
func inRunning() []Mutant {
	return []Mutant{
		{
			Name:   "ended-attempts-run",
			Edits:  []Edit{{"fsm/transition.go", "\t\t\tj.running--\n", "\t\t\t_ = j\n"}},
			Caught: []Checker{{Package: "./fsm", Run: "TestALoggedStartCounts"}, twins},
		},
		{
			Name:   "a-restored-replica-knows-no-starts",
			Edits:  []Edit{{"fsm/restore.go", "\tif r.runs() {\n", "\tif r.runs() && j.records.n > 0 {\n"}},
			Caught: []Checker{{Package: "./fsm", Run: "TestALoggedStartCounts"}, snapshots},
		},
		{
			Name:   "a-logged-start-is-not-shown",
			Edits:  []Edit{{"coordinator/api/running.go", `return t.Runs || onlyObserved(t, o)`, `return onlyObserved(t, o)`}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "StartIsInTheLog|StartsInTheLog"}},
		},
	}
}
