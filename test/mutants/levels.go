package mutants

// inLevels returns the mistakes that halt the replicas that are not upgraded yet.
func inLevels() []Mutant {
	return []Mutant{
		{
			Name:   "an-operation-above-the-level-is-proposed",
			Edits:  []Edit{{"fsm/entry_builder.go", `return OpLevel(op) > b.s.Level()`, `return OpLevel(op) > MaxLevel`}},
			Caught: []Checker{{Package: "./fsm", Run: "TestAnEntryHasNoOperationAbove"}},
		},
		{
			Name:   "a-snapshot-is-written-at-the-level-of-the-build",
			Edits:  []Edit{{"fsm/level.go", "\ts.level.fields(&f.c)\n", "\tl := level{current: MaxLevel, held: s.LevelHeld()}\n\tl.fields(&f.c)\n"}},
			Caught: []Checker{{Package: "./fsm", Run: "TestASnapshotIsWrittenAtTheLevel"}},
		},
		{
			Name:   "the-level-is-lowered",
			Edits:  []Edit{{"fsm/level.go", `case o.Level < s.level.current:`, `case o.Level+1 < s.level.current:`}},
			Caught: []Checker{{Package: "./fsm", Run: "TestTheLevelOfACluster"}, twins},
		},
	}
}
