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
		{
			Name:   "a-job-starts-before-the-jobs-that-it-needs",
			Edits:  []Edit{{"fsm/needs.go", "case !found[waits]:", "default:"}},
			Caught: []Checker{{Package: "./fsm", Run: "TestAJobStartsWhen|ReferenceModel"}},
		},
		{
			Name:   "a-restored-replica-forgets-who-waits",
			Edits:  []Edit{{"fsm/restore.go", "s.restoreNeeds()", ""}},
			Caught: []Checker{snapshots},
		},
		{
			Name:   "a-job-that-was-cancelled-does-not-learn-how-a-needed-job-ended",
			Edits:  []Edit{{"fsm/needs.go", "if j == nil || !j.asks(x.id) {", "if j == nil || !j.asks(x.id) || j.state.Terminal() {"}},
			Caught: []Checker{{Package: "./fsm", Run: "TestACancelledJobLearns|ReferenceModel"}},
		},
		{
			Name:   "the-digest-depends-on-whether-a-replica-was-restored",
			Edits:  []Edit{{"fsm/needs.go", "		ids = slices.Compact(ids)\n", ""}},
			Caught: []Checker{{Package: "./fsm", Run: "TestARestoredReplicaAgreesAboutNeeds"}},
		},
	}
}
