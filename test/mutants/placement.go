package mutants

// inPlacement returns the mistakes by which tasks run on other workers than they may.
func inPlacement() []Mutant {
	model := Checker{Package: "./scheduler", Run: "TestEveryDecisionMatchesTheReferenceModel"}
	return []Mutant{
		{
			Name:   "an-excluded-label-is-required",
			Edits:  []Edit{{"scheduler/label_rule.go", "			return !r.not\n		}\n	}\n	return r.not\n", "			return true\n		}\n	}\n	return false\n"}},
			Caught: []Checker{model, {Package: "./coordinator/sequencer", Run: "TestAPlannerKnowsRulesAboutLabels"}},
		},
		{
			Name:   "demands-with-other-rules-share-a-class",
			Edits:  []Edit{{"scheduler/class.go", "	b = appendRules(b, d.Rules)\n", ""}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestDemandsDifferByTheirRules"}},
		},
		{
			Name: "a-preference-outweighs-a-free-slot",
			Edits: []Edit{
				{"scheduler/strategy.go", "(w.used >= w.slots) == x.waits && w.fits", "(!x.waits || w.used >= w.slots) && w.fits"},
				{"scheduler/strategy.go", "		case !some || w.full() || w.used >= w.slots && !x.waits:\n", "		case !some || w.full():\n"},
			},
			Caught: []Checker{{Package: "./scheduler", Run: "TestAFreeSlotComesBeforeAPreference"}},
		},
		{
			Name:   "the-order-of-pack-misses-ends",
			Edits:  []Edit{{"scheduler/worker.go", "		s.byLoad.remove(w.pos)\n	}\n	if s.pack != nil {\n", "		s.byLoad.remove(w.pos)\n	}\n	if s.pack != nil && w.used >= w.slots {\n"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestPackFillsAWorkerAgain"}, model},
		},
		{
			Name:   "pack-ignores-resources",
			Edits:  []Edit{{"scheduler/pack.go", "			w.share = max(w.share, share)\n", "			w.share = min(w.share, unit+share)\n"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestPackMeasuresTheScarcestResource"}},
		},
		{
			Name:   "random-draws-once",
			Edits:  []Edit{{"scheduler/strategy.go", "			return lessLoaded(first, w)\n", "			return first\n"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestRandomTakesTheLessLoadedOfTwo"}},
		},
		{
			Name:   "a-new-label-attracts-only-its-task",
			Edits:  []Edit{{"scheduler/label_change.go", "	return mergeSorted(labels, []labelID{l, v.presence[l]})\n", "	return mergeSorted(labels, []labelID{l})\n"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestALabelThatStartsATaskBeforeIsNoChange"}},
		},
		{
			Name:   "a-key-stays-with-a-worker-that-drains",
			Edits:  []Edit{{"scheduler/worker.go", "		wk.accepting = accepting\n		s.fleetChanged()\n", "		wk.accepting = accepting\n"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestKeysMoveAtOnceWhenTheirWorkerDrains"}},
		},
		{
			Name:   "a-task-with-a-key-never-spills",
			Edits:  []Edit{{"scheduler/affinity_wait.go", "		if k := p.ready.items[0]; idle && k.oldest <= s.affinity.old || s.excess(p.worker) > 0 {\n", "		if k := p.ready.items[0]; s.excess(p.worker) > 0 {\n"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestATaskWaitsASecondForTheWorkerOfItsKey"}},
		},
		{
			Name:   "loads-have-no-bound",
			Edits:  []Edit{{"scheduler/affinity_wait.go", "	mean := 5 * (", "	mean := 0 * ("}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestTasksWithinTheBoundDoNotSpillAtOnce"}},
		},
		{
			Name:   "tasks-with-keys-are-never-prefetched",
			Edits:  []Edit{{"scheduler/class.go", "d.NoPrefetch || len(d.Uses) > 0 ||", "d.NoPrefetch || d.Affinity != \"\" || len(d.Uses) > 0 ||"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestKeysCostASaturatedClusterNoThroughput"}},
		},
		{
			Name:   "what-is-prefetched-for-keys-has-no-bound",
			Edits:  []Edit{{"scheduler/affinity.go", "return !idle || w.waiting < w.slots }", "return !idle || w.waiting < w.slots+w.prefetch }"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestAWorkerPrefetches"}},
		},
		{
			Name:   "tasks-wait-for-idle-workers-that-are-gone",
			Edits:  []Edit{{"scheduler/affinity.go", "		s.affinity.bound = append(s.affinity.bound, w)\n", ""}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestAWorkerPrefetches"}},
		},
		{
			Name:   "what-waits-at-the-worker-of-its-key-is-stolen-at-once",
			Edits:  []Edit{{"scheduler/rebalance.go", "					r.Waited = affinityWait\n", ""}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestWhatIsPrefetchedForAKeyIsStolenAfterASecond"}},
		},
		{
			Name:   "an-attempt-that-is-held-again-is-observed-for-ever",
			Edits:  []Edit{{"coordinator/sequencer/workers.go", "	x.observed = t.running.has(a)", "	x.observed = false"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestAnAttemptThatIsHeldAgain"}},
		},
		{
			Name:   "spilled-tasks-start-before-others",
			Edits:  []Edit{{"scheduler/affinity_wait.go", "		s.affinity.spent = false\n		s.affinity.round++\n", "		s.affinity.spent = false\n"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestATaskThatMaySpillDoesNotStartBeforeOthers"}},
		},
		{
			Name:   "a-task-stays-in-the-queues-of-other-alternatives",
			Edits:  []Edit{{"scheduler/alternatives.go", "		if other := &a.queues[q.priority]; other != q {\n", "		if other := &a.queues[q.priority]; other != q && q.class.number > 0 {\n"}},
			Caught: []Checker{model, {Package: "./scheduler", Run: "TestATaskTakesTheFirstAlternativeThatFits"}},
		},
		{
			Name:   "each-alternative-has-a-limit-of-its-own",
			Edits:  []Edit{{"scheduler/alternatives.go", "		c.alternatives, c.group = all, g\n", "		c.alternatives = all\n		if g != nil {\n			c.group = &group{limit: g.limit}\n		}\n"}},
			Caught: []Checker{model, {Package: "./scheduler", Run: "TestAlternativesShareTheLimitOfTheirGroup"}},
		},
		{
			Name:   "a-new-leader-counts-the-first-alternative",
			Edits:  []Edit{{"coordinator/sequencer/policies.go", "		return p.sched.Alternative(class, t.Alternative)\n", "		return p.sched.Alternative(class, t.Alternative*0)\n"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestAlternativesAreCountedAfterEachChangeOfLeader"}},
		},
		{
			Name:   "a-worker-is-told-of-the-first-alternative",
			Edits:  []Edit{{"coordinator/session/assignments.go", "		taken.Resources = others[alternative-1].GetResources()\n", "		taken.Resources = others[0].GetResources()\n"}},
			Caught: []Checker{{Package: "./coordinator/session", Run: "TestAnAssignmentHasTheResourcesThatItTakes"}},
		},
	}
}

// inLabels returns mistakes in what workers announce of themselves, and what is made of it.
func inLabels() []Mutant {
	return []Mutant{
		{
			Name:   "a-reserved-worker-does-not-announce-it",
			Edits:  []Edit{{"worker/session.go", ", Reserved: w.cfg.Reserved,", ","}},
			Caught: []Checker{{Package: "./cmd/internal/dtaskworker", Run: "TestAReservedWorkerAnnouncesIt"}},
		},
		{
			Name:   "what-a-reserved-worker-announces-is-ignored",
			Edits:  []Edit{{"coordinator/session/grant.go", "	if !h.GetReserved() {", "	if !h.GetReserved() || true {"}},
			Caught: []Checker{{Package: "./coordinator/session", Run: "TestAWorkerThatAnnouncesItIsReserved"}},
		},
		{
			Name:   "a-worker-chooses-its-label-worker",
			Edits:  []Edit{{"coordinator/session/automatic_labels.go", "	list[fsm.WorkerLabel] = h.GetName()\n", "	if list[fsm.WorkerLabel] == \"\" {\n		list[fsm.WorkerLabel] = h.GetName()\n	}\n"}},
			Caught: []Checker{{Package: "./coordinator/session", Run: "TestAutomaticLabelsAreThoseThatAWorkerCannotInvent"}},
		},
	}
}
