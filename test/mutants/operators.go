package mutants

// inOperators returns the planted bugs of what operators rely on: the replacement of a lost
// coordinator, events and debug bundles.
func inOperators() []Mutant {
	return []Mutant{
		{
			Name:   "a-member-that-has-returned-is-replaced",
			Edits:  []Edit{{"coordinator/membership/replace.go", `rec.Replaces == old && indexOf(members, old) < 0 && indexOf`, `rec.Replaces == old && indexOf`}},
			Caught: []Checker{{Package: "./coordinator/membership", Run: "AMemberThatReturnedDuringItsReplacement"}},
		},
		{
			Name: "a-removed-replacement-is-added-again",
			Edits: []Edit{{"coordinator/membership/change.go", `	if _, err := s.markRemoved(ctx, recorder, id); err != nil {
		return nil, err
	}
`, ``}},
			Caught: []Checker{{Package: "./coordinator/membership", Run: "ARemovedReplacementIsNotAddedAgain"}},
		},
		{
			Name:   "a-member-lags-since-its-last-entry",
			Edits:  []Edit{{"coordinator/membership/status.go", `s.cfg.Machine.NextEntry(m.GetApplied())`, `s.cfg.Machine.NextEntry(m.GetApplied() - 1)`}},
			Caught: []Checker{{Package: "./coordinator/membership", Run: "LagsSinceTheEntryThatItAppliesNext"}},
		},
		{
			Name:   "events-of-foreign-namespaces-are-seen",
			Edits:  []Edit{{"coordinator/api/events.go", `case e.Job != 0 && !f.caller.SeesAll() && !f.caller.Sees(namespace):`, `case e.Job != 0 && !f.caller.SeesAll() && namespace == "":`}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "CallersSeeTheEventsOfTheirNamespaces"}},
		},
		{
			Name:   "events-before-a-snapshot-are-missing-silently",
			Edits:  []Edit{{"fsm/events.go", `*r = eventRing{floor: index}`, `*r = eventRing{floor: min(index, 0)}`}},
			Caught: []Checker{{Package: "./fsm", Run: "ReplicasHaveTheSameEvents"}, {Package: "./coordinator/api", Run: "AFollowerOfEventsContinues"}},
		},
		{
			Name:   "a-file-of-a-debug-bundle-is-cut-silently",
			Edits:  []Edit{{"coordinator/api/debug.go", `	if err == nil && n < len(b) {`, `	if err != nil && n < len(b) {`}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "ADebugBundleHasAllFiles"}},
		},
		{
			Name:   "a-debug-bundle-has-the-secret-of-a-url",
			Edits:  []Edit{{"internal/config/config.go", `return u.Scheme + "://" + u.Host`, `return u.String()`}},
			Caught: []Checker{{Package: "./internal/config", Run: "WithoutTheSecretsOfURLs"}},
		},
		{
			Name:   "a-long-profile-is-cut-off",
			Edits:  []Edit{{"client/debug.go", `limit := profile + debugTimeout`, `limit := debugTimeout`}},
			Caught: []Checker{{Package: "./client", Run: "ADebugBundleIsComplete"}},
		},
		{
			Name:   "a-new-coordinator-forgets-its-log-store",
			Edits:  []Edit{{"cmd/internal/dtaskd/setup.go", `LogStore: s.logStore, `, ``}},
			Caught: []Checker{{Package: "./cmd/internal/dtaskd", Run: "TestTheLogStoreOfInitAndJoin"}},
		},
	}
}
