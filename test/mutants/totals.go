package mutants

// inTotals returns the mistakes in the totals of tasks and jobs that have ended.
func inTotals() []Mutant {
	return []Mutant{
		{
			Name:   "a-retry-counts-as-a-failed-task",
			Edits:  []Edit{{"fsm/op_fail.go", "\t\ts.move(j, it.Index, Scheduled)\n", "\t\ts.move(j, it.Index, Scheduled)\n\t\ts.countTask(Failed)\n"}},
			Caught: []Checker{{Package: "./fsm", Run: "TestARevivedTaskCounts"}, twins},
		},
		{
			Name:   "of-cancelled-tasks-only-those-that-ran-count",
			Edits:  []Edit{{"fsm/transition.go", "\t\tif to.Terminal() {\n", "\t\tif to.Terminal() && (to != Cancelled || r.state == Assigned) {\n"}},
			Caught: []Checker{{Package: "./fsm", Run: "TestEachTaskOfACancelledJob"}, twins},
		},
		{
			Name:   "a-snapshot-forgets-how-many-jobs-ended",
			Edits:  []Edit{{"fsm/totals.go", `for i := range t.jobs {`, `for i := range t.jobs[:0] {`}},
			Caught: []Checker{{Package: "./fsm", Run: "TestTotalsSurvive"}, simulated},
		},
		{
			Name:   "ends-are-counted-below-their-level",
			Edits:  []Edit{{"fsm/totals.go", `return s.level.current >= totalsLevel`, `return s.level.current >= totalsLevel-1`}},
			Caught: []Checker{{Package: "./fsm", Run: "TestEndsAreCountedFromTheirLevel|TestReleased"}, twins},
		},
		{
			Name:   "replicas-with-other-totals-agree",
			Edits:  []Edit{{"fsm/totals.go", "\t\ts.mix(*total)\n", ""}},
			Caught: []Checker{{Package: "./fsm", Run: "TestATotalThatDiffers|TestReleased"}},
		},
		{
			Name:   "totals-are-served-before-the-log-is-applied",
			Edits:  []Edit{{"coordinator/raftnode/stats.go", `return leader != "" && n.AppliedIndex() >= n.found`, `return leader != ""`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "TestARestartedReplicaIsNotCurrent"}},
		},
		{
			Name:   "totals-are-served-without-a-leader",
			Edits:  []Edit{{"coordinator/raftnode/stats.go", `return leader != "" && n.AppliedIndex() >= n.found`, `return len(leader) >= 0 && n.AppliedIndex() >= n.found`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "TestAReplicaWithoutALeader"}},
		},
		{
			Name:   "totals-are-served-by-a-member-without-a-vote",
			Edits:  []Edit{{"coordinator/raftnode/stats.go", `_, votes := n.otherVoters("")`, `votes := true`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "TestANewMemberIsNotCurrent"}},
		},
	}
}
