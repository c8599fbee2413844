package mutants

// inPlacement returns the mistakes by which tasks run on other workers than they may.
func inPlacement() []Mutant {
	model := Checker{Package: "./scheduler", Run: "TestEveryDecisionMatchesTheReferenceModel"}
	changes := Checker{Package: "./scheduler", Run: "TestChangesAreSoundAndComplete"}
	return []Mutant{
		{
			Name:   "an-excluded-label-is-required",
			Edits:  []Edit{{"scheduler/label_rule.go", "			return !r.not\n		}\n	}\n	return r.not\n", "			return true\n		}\n	}\n	return false\n"}},
			Caught: []Checker{model, {Package: "./coordinator/sequencer", Run: "TestAPlannerKnowsRulesAboutLabels"}},
		},
		{
			Name:   "demands-with-other-rules-share-a-class",
			Edits:  []Edit{{"scheduler/class.go", "	return appendRules(b, d.Rules)\n", "	return b\n"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestDemandsDifferByTheirRules"}},
		},
		{
			Name:   "a-label-that-is-removed-leaves-a-trace",
			Edits:  []Edit{{"scheduler/label_rule.go", "	if v.presence.hasOther(out, l) {\n", "	if v.presence != nil {\n"}},
			Caught: []Checker{changes},
		},
		{
			Name:   "a-worker-chooses-its-label-worker",
			Edits:  []Edit{{"coordinator/session/automatic_labels.go", "	list[fsm.WorkerLabel] = h.GetName()\n", "	if list[fsm.WorkerLabel] == \"\" {\n		list[fsm.WorkerLabel] = h.GetName()\n	}\n"}},
			Caught: []Checker{{Package: "./coordinator/session", Run: "TestAutomaticLabelsAreThoseThatAWorkerCannotInvent"}},
		},
	}
}
