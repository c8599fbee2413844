package mutants

// inDeployment returns the planted bugs of what service managers and orchestrators rely on.
func inDeployment() []Mutant {
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
	}
}
