package mutants

// inOffline returns the planted bugs of the commands for stopped replicas.
func inOffline() []Mutant {
	offline := []Checker{{Package: "./coordinator/offline", Run: "."}}
	return []Mutant{
		{
			Name:   "a-recovered-cluster-keeps-its-epoch",
			Edits:  []Edit{{"fsm/recovery.go", `m.state.epoch++ // no`, `// no`}},
			Caught: []Checker{{Package: "./fsm", Run: "RecoveredState"}},
		},
		{
			Name:   "a-recovered-cluster-repeats-job-numbers",
			Edits:  []Edit{{"fsm/recovery.go", `s.nextJob += recoveryGap`, `s.nextJob += 0`}},
			Caught: []Checker{{Package: "./fsm", Run: "RecoveredState"}},
		},
		{
			Name:   "a-recovered-at-most-once-task-runs-again",
			Edits:  []Edit{{"fsm/recovery.go", `if !r.KeepAtMostOnce {`, `if r.KeepAtMostOnce {`}},
			Caught: []Checker{{Package: "./fsm", Run: "RecoveredState"}},
		},
		{
			Name:   "a-shorter-survivor-is-recovered",
			Edits:  []Edit{{"coordinator/offline/recover.go", `other.LastTerm > p.found.Term || other.LastTerm`, `other.LastTerm`}},
			Caught: offline,
		},
		{
			Name:   "an-unconfirmed-rejoin-discards-the-directory",
			Edits:  []Edit{{"coordinator/offline/discard.go", `if err != nil || !confirmed {`, `if err != nil {`}},
			Caught: offline,
		},
	}
}
