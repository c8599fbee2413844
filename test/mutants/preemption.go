package mutants

// inPreemption returns the mistakes by which other attempts end for an urgent task than should, or
// for nothing.
func inPreemption() []Mutant {
	caught := func(run string) []Checker { return []Checker{{Package: "./scheduler", Run: run}} }
	return []Mutant{
		{
			Name:   "an-attempt-of-another-queue-is-preempted",
			Edits:  []Edit{{"scheduler/preempt.go", "if y.Priority < Urgent && s.classes[y.Class].flow.queue == q {", "if y.Priority < Urgent {"}},
			Caught: caught("TestAttemptsOfOtherQueuesDoNotEnd"),
		},
		{
			Name:   "an-urgent-attempt-is-preempted",
			Edits:  []Edit{{"scheduler/preempt.go", "if y.Priority < Urgent && s.", "if s."}, {"scheduler/preempt.go", "c, least := r.class, Urgent\n", "c, least := r.class, Urgent+1\n"}},
			Caught: caught("TestUrgentAttemptsDoNotEnd"),
		},
		{
			Name:   "an-attempt-is-preempted-that-is-not-needed",
			Edits:  []Edit{{"scheduler/preempt.go", "if l.change(sh, 1); l.isZero() {", "if l.change(sh, 1); false {"}},
			Caught: caught("TestNoAttemptEndsThatIsNotNeeded"),
		},
		{
			Name:   "higher-priorities-are-preempted-if-they-are-fewer",
			Edits:  []Edit{{"scheduler/preempt.go", "cmp.Or(cmp.Compare(highest, least), cmp.Compare(n, attempts(list))) < 0", "cmp.Or(cmp.Compare(n, attempts(list)), cmp.Compare(highest, least)) < 0"}},
			Caught: caught("TestMoreAttemptsEndRather"),
		},
		{
			Name:   "the-place-of-a-preempted-attempt-is-not-kept",
			Edits:  []Edit{{"scheduler/preempt.go", "s.recheck(k) // only a quota may be short", "s.unkeep(k)"}},
			Caught: caught("TestAnUrgentTaskTakesThePlace"),
		},
		{
			Name:   "a-task-is-preempted-without-an-end",
			Edits:  []Edit{{"coordinator/sequencer/preempt.go", "released >= maxPreempted {", "released < 0 {"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestATaskIsPreemptedThreeTimesAtMost"}},
		},
		{
			Name:   "an-ending-outlives-its-attempt",
			Edits:  []Edit{{"coordinator/sequencer/held.go", "	if x.ends {\n		delete(h.endings, a)\n	}\n	last", "	last"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestHoldingsBehaveLikeAMap"}},
		},
	}
}
