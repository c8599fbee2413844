package mutants

// inExplain returns the mistakes by which a task is explained wrongly.
func inExplain() []Mutant {
	caught := []Checker{{Package: "./scheduler", Run: "TestChangesAreSound", Args: []string{"-change.states=600"}}}
	quota := []Checker{{Package: "./scheduler", Run: "TestChangesKnowHowFarAQuota", Args: []string{"-change.states=600"}}}
	simulation := []Checker{{Package: "./coordinator/sequencer", Run: "TestNothingAcknowledgedIsLostWhateverHappens$"}}
	return []Mutant{
		{
			Name:   "a-retried-task-has-an-empty-answer",
			Edits:  []Edit{{"coordinator/sequencer/explain.go", "	if s.viewCapacity(b, q, &t); t.State == fsm.Pending {\n", "	if t.Attempt > 0 {\n		return e\n	}\n	if s.viewCapacity(b, q, &t); t.State == fsm.Pending {\n"}},
			Caught: simulation,
		},
		{
			Name:   "an-explanation-changes-which-worker-is-next",
			Edits:  []Edit{{"scheduler/task_view.go", "	p = p.orNormal()\n	v := &TaskView{\n", "	p = p.orNormal()\n	s.choices++\n	v := &TaskView{\n"}},
			Caught: simulation,
		},
		{
			Name:   "tasks-ahead-do-not-compete",
			Edits:  []Edit{{"scheduler/trial_reservation.go", "	if t.assign(c); !ok ||", "	if t.v.steps++; !ok ||"}},
			Caught: caught,
		},
		{
			Name: "a-full-limit-is-no-obstacle-of-the-tasks-ahead",
			Edits: []Edit{
				{"scheduler/trial_order.go", "t.v.ahead[k].class.mayStart(t.v.ahead[k].priority) && (best < 0", "(best < 0"},
				{"scheduler/trial.go", "			if c.mayStart(t.v.ahead[k].priority) {\n				t.alive = append", "			if true {\n				t.alive = append"},
			},
			Caught: caught,
		},
		{
			Name:   "a-quota-is-to-be-raised-to-what-is-missing",
			Edits:  []Edit{{"scheduler/queue_change.go", "	least = o.Total - o.Free + o.Want\n", "	least = o.Total + o.Want\n"}},
			Caught: quota,
		},
		{
			Name:   "a-quota-is-raised-further-than-the-next-task-needs",
			Edits:  []Edit{{"scheduler/queue_change.go", "		least += step\n", "		least += step + 1\n"}},
			Caught: quota,
		},
		{
			Name:   "a-limit-without-rate-allows-one-task-fewer",
			Edits:  []Edit{{"scheduler/change.go", "Change{Kind: RemoveRate, Name: l.name, Amount: int64(l.held)}", "Change{Kind: RemoveRate, Name: l.name, Amount: int64(l.held) - 1}"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestChangesKnowHowFarALimit"}},
		},
		{
			Name:   "a-limit-is-raised-for-one-of-its-keys",
			Edits:  []Edit{{"scheduler/change.go", "(a.class.usesLimit(l) || a.class.waitsForLike(l))", "a.class.usesLimit(l)"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestALimitIsRaised"}, {Package: "./scheduler", Run: "TestChangesKnowHowFarALimit"}},
		},
		{
			Name:   "a-place-in-a-queue-is-a-start",
			Edits:  []Edit{{"scheduler/change.go", "			elsewhere = true // it would", "			return true // it would"}},
			Caught: caught,
		},
		{
			Name:   "an-explanation-forgets-which-worker-a-task-avoids",
			Edits:  []Edit{{"scheduler/queue_change.go", "e.avoid = a.avoid[k]", "e.avoid = 0"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestAChangeOfAQueueKnowsWhichWorkersTasksAvoid"}},
		},
		{
			Name:   "a-full-limit-is-held-by-the-tasks-of-others",
			Edits:  []Edit{{"scheduler/named_limit.go", "slices.Contains(v.running.classes[a.Class].demand.Uses, limit)", "len(v.running.classes[a.Class].demand.Uses) > 0"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestTheHoldersOfAFullLimitAreThoseThatUseIt"}},
		},
		{
			Name:   "a-limit-that-is-not-full-has-holders",
			Edits:  []Edit{{"coordinator/sequencer/named_limits.go", "if l.Running > 0 && l.Held >= l.Running {", "if l.Running > 0 {"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestTheHoldersOfAFullLimitAreThoseThatUseIt"}},
		},
		{
			Name:   "holders-of-other-namespaces-are-named",
			Edits:  []Edit{{"coordinator/api/limits.go", "if !ok || !sees(p, job.Header) {", "if !ok || job.Header == nil {"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestHoldersOfALimitInOtherNamespacesAreNotNamed"}},
		},
		{
			Name:   "some-holders-are-shown-as-all",
			Edits:  []Edit{{"coordinator/api/explain_text.go", "case named < r.GetFree():", "case named > r.GetFree():"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestHoldersOfALimitInOtherNamespacesAreNotNamed"}},
		},
		{
			Name:   "the-policies-of-ended-jobs-are-kept",
			Edits:  []Edit{{"coordinator/sequencer/policies.go", "	if !job.State.Terminal() { // else nothing would remove it\n", "	if id > 0 {\n"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestExplainingTasksOfEndedJobsKeepsNothing"}},
		},
		{
			Name:   "what-fits-together-needs-no-room-for-the-task",
			Edits:  []Edit{{"scheduler/trial.go", "	return t.w.used < t.w.slots && t.w.fitsWithSlot(t.v.class.shape)\n}\n\n// seq returns", "	return true\n}\n\n// seq returns"}},
			Caught: caught,
		},
		{
			Name:   "explain-names-workers-of-other-namespaces",
			Edits:  []Edit{{"coordinator/api/explain.go", "return w != nil && servesCaller(w, x.caller)", "return w != nil"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestWorkersOfOtherNamespaces"}},
		},
		{
			Name:   "the-demand-that-no-worker-fulfills-depends-on-workers-of-other-namespaces",
			Edits:  []Edit{{"coordinator/api/explain_pending.go", "x.job.Policy(number), x.sees)", "x.job.Policy(number), anyWorker)"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestADemandIsExplainedWithoutWorkersOfOtherNamespaces"}},
		},
		{
			Name:   "the-most-that-a-worker-has-is-that-of-the-first",
			Edits:  []Edit{{"coordinator/api/pending_reason.go", "reason.Total = max(reason.GetTotal(), amountOf(w, r.name))", "reason.Total = amountOf(w, r.name)\n\t\tbreak"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestTheDemandThatNoWorkerFulfills"}},
		},
	}
}

// inChanges returns the mistakes by which explain names other changes than those that start a task.
func inChanges() []Mutant {
	return []Mutant{
		{
			Name:   "explain-forgets-a-queue-that-may-be-passed-over-from-now-on",
			Edits:  []Edit{{"scheduler/trial_reservation.go", "(q.passes || q != v.class.flow.queue) &&", "q.passes &&"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestAChangeKnowsThatAQueueMayBePassedOver"}},
		},
		{
			Name:   "a-change-ignores-that-queues-want-a-worker",
			Edits:  []Edit{{"scheduler/task_view.go", "wanted: len(s.wants) > 0, retried: len(s.wants) > 0 && (s.unkept || s.fitting)", "wanted: false, retried: false"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestChangesAreSoundWhileQueuesWantAWorker"}},
		},
		{
			Name:   "a-change-forgets-what-a-turn-by-age-reserves",
			Edits:  []Edit{{"scheduler/trial_reservation.go", "q.turn != agedStart-1 || !t.maySave(q, seq) && t.reserve(q, seq, k)", "q.turn != agedStart || !t.maySave(q, seq) && t.reserve(q, seq, k)"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestAChangeKnowsWhichWorkerIsReservedAtATurnByAge"}},
		},
		{
			Name:   "shares-of-resources-do-not-depend-on-the-task-itself",
			Edits:  []Edit{{"scheduler/trial_order.go", "return v.class.sharesResources() ||", "return"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestChangesAreSoundAndComplete"}},
		},
		{
			Name:   "a-worker-that-joins-takes-the-tasks-of-all-keys",
			Edits:  []Edit{{"scheduler/affinity_view.go", "t.unknown = t.unknown || eligible", "t.unknown = t.unknown && eligible"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestAWorkerThatJoinsMayStartALargerAlternative"}},
		},
		{
			Name:   "each-alternative-names-its-own-label",
			Edits:  []Edit{{"scheduler/alternatives_change.go", "(c.Kind == AddLabel || c.Label == o.Label)", "c.Label == o.Label"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestTheFirstLabelThatSufficesIsNamed"}},
		},
		{
			Name:   "the-last-label-that-suffices-is-named",
			Edits:  []Edit{{"scheduler/label_change.go", "range slices.Sorted(maps.Keys(forbidden)) {", "range slices.Backward(slices.Sorted(maps.Keys(forbidden))) {"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestTheFirstLabelThatSufficesIsNamed"}},
		},
	}
}

// inEstimates returns the mistakes by which a task is expected to start at another time.
func inEstimates() []Mutant {
	return []Mutant{
		{
			Name:   "an-estimate-from-two-samples",
			Edits:  []Edit{{"scheduler/estimate.go", "	minSamples = 5\n", "	minSamples = 2\n"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestAnEstimateNeedsFiveSamples"}},
		},
		{
			Name:   "an-estimate-forgets-what-waits-at-workers",
			Edits:  []Edit{{"scheduler/estimate.go", "		if a.RanMS < 0 {\n", "		if a.RanMS < -1 {\n"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestAnAttemptThatWaitsForASlot"}},
		},
		{
			Name:   "workers-with-other-labels-are-equal",
			Edits:  []Edit{{"scheduler/fleet_copy.go", "		b = append(b, flags(contains(o.labels, x)))\n", "		_ = x\n"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestOnlyWorkersThatAreEqual"}},
		},
	}
}
