package mutants

// inOffline returns the planted bugs of the commands for stopped replicas.
func inOffline() []Mutant {
	offline := []Checker{{Package: "./coordinator/offline", Run: "."}}
	return []Mutant{
		{
			Name:   "the-settings-are-quarantined-with-the-data",
			Edits:  []Edit{{"coordinator/membership/datadir/quarantine.go", "if !hasSetup(dir) {", "if dir != \"\" {"}},
			Caught: []Checker{{Package: "./coordinator/membership/datadir", Run: "TestADamagedDirectoryKeepsTheSettings"}},
		},
		{
			Name:   "a-timer-feeds-the-watchdog",
			Edits:  []Edit{{"coordinator/liveness.go", "if !busy || steps != last {", "if !busy || steps >= last {"}},
			Caught: []Checker{{Package: "./coordinator", Run: "TestAReplicaIsAliveWithoutWorkOrWithProgress"}},
		},
		{
			Name:   "reading-a-snapshot-looks-like-a-hang",
			Edits:  []Edit{{"coordinator/liveness.go", "	r.work.steps.Add(1)\n", ""}},
			Caught: []Checker{{Package: "./coordinator", Run: "TestReadingASnapshotIsProgress"}},
		},
		{
			Name:   "everyone-reads-why-a-replica-is-not-ready",
			Edits:  []Edit{{"coordinator/access/http.go", "next.ServeHTTP(statusOnly{w}, q)", "next.ServeHTTP(w, q)"}},
			Caught: []Checker{{Package: "./coordinator/access", Run: "TestOnlyTheStatusOfReadinessIsOpen"}},
		},
		{
			Name:   "a-recovered-cluster-keeps-its-epoch",
			Edits:  []Edit{{"fsm/recovery.go", `s.epoch++ // no`, `// no`}},
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
