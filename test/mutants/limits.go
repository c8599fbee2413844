package mutants

// inLimits returns the mistakes by which more attempts than a named limit allows run or start,
// or by which a task waits for a limit that is free.
func inLimits() []Mutant {
	simulation := Checker{Package: "./coordinator/sequencer", Run: "TestNothingAcknowledgedIsLostWhateverHappens$"}
	return []Mutant{
		{
			Name:   "a-worker-that-returns-within-a-lease-leaves-the-limits-of-an-archived-job",
			Edits:  []Edit{{"coordinator/sequencer/workers.go", "x.class = l.class", "_ = l.class"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestAnAttemptOfAnArchivedJobCountsWhenItsWorker"}},
		},
		{
			Name:   "a-job-is-archived-while-a-worker-stops-tasks-of-it",
			Edits:  []Edit{{"coordinator/sequencer/retention.go", "a.mayStop(j.id)", "false"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestAnAttemptThatStopsSlowlyCounts"}},
		},
		{
			Name: "an-attempt-on-a-lost-worker-leaves-its-limit",
			Edits: []Edit{{
				"coordinator/sequencer/workers.go", "return t.sched.UsesLimits(x.class) || startLogged(", "return startLogged(",
			}},
			Caught: []Checker{simulation},
		},
		{
			Name:   "a-new-leader-ignores-attempts-of-unknown-jobs",
			Edits:  []Edit{{"coordinator/sequencer/attach.go", "			if !known {\n				t.settling.unknown(b)\n			}\n", "			_ = known\n"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestAnAttemptOfAnArchivedJob"}},
		},
		{
			Name:   "a-cancelled-attempt-on-a-lost-worker-leaves-its-limit",
			Edits:  []Edit{{"coordinator/sequencer/leases.go", "if !l.byRef[a].keeps {", "if a.Attempt > 0 {"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestACancelledAttemptOfALostWorker"}},
		},
		{
			Name:   "a-new-leader-does-not-wait-before-it-counts",
			Edits:  []Edit{{"coordinator/sequencer/named_limits.go", "	x.sched.PauseLimits(true)\n", ""}},
			Caught: []Checker{simulation},
		},
		{
			Name:   "a-new-leader-has-full-buckets",
			Edits:  []Edit{{"coordinator/sequencer/limit_rates.go", "if r.set[fsm.LimitOf(use)] {", "if k.use == use {"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestTheBucketsOfANewLeader"}},
		},
		{
			Name:   "the-end-of-an-attempt-wakes-nothing",
			Edits:  []Edit{{"scheduler/named_limit.go", "		l.held--\n		s.changed(l, wasFull)", "		l.held--\n		_ = wasFull"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestEveryDecisionMatchesTheReferenceModel"}, simulation},
		},
		{
			Name: "all-keys-share-a-counter",
			Edits: []Edit{{
				"coordinator/sequencer/policies.go", "	d.Uses, d.Affinity = p.GetUses(), p.GetAffinity()\n",
				"	for _, use := range p.GetUses() {\n		d.Uses = append(d.Uses, fsm.LimitOf(use))\n	}\n	d.Affinity = p.GetAffinity()\n",
			}},
			Caught: []Checker{simulation},
		},
		{
			Name:   "an-attempt-with-a-limit-outlives-its-lease",
			Edits:  []Edit{{"worker/attempt_table.go", "		case a.limited:\n			return errLimitedLeaseEnded", "		case a.limited:\n			return nil"}},
			Caught: []Checker{{Package: "./worker", Run: "TestAnAttemptThatCountsTowardsALimit"}},
		},
	}
}
