package mutants

// inStorage are mistakes of log and stable store.
func inStorage() []Mutant {
	stores := Checker{Package: "./coordinator/raftnode", Run: "Store|Entr|Damage|Flip|Disk|Hang|Fail"}
	return []Mutant{
		{
			Name: "a-failed-write-is-ignored",
			Edits: []Edit{{
				"coordinator/raftnode/store.go",
				"\tif err := s.call(\"storing entries\", func() error { return s.backend.StoreLogs(logs) }); err != nil {\n\t\treturn err\n\t}\n",
				"\t_ = s.backend.StoreLogs(logs)\n",
			}},
			Caught: []Checker{stores},
		},
		{
			Name:   "checksums-are-not-compared",
			Edits:  []Edit{{"coordinator/raftnode/store.go", "\tproblem := verify(log)\n", "\tproblem := \"\"\n"}},
			Caught: []Checker{stores},
		},
		{
			Name:   "damage-spreads-by-replication",
			Edits:  []Edit{{"coordinator/raftnode/store.go", `} else if problem := verify(log); problem != "" {`, `} else if problem := verify(log); problem != "" && len(log.Data) > 1<<30 {`}},
			Caught: []Checker{stores},
		},
		{
			Name:   "a-store-that-hangs-is-waited-for",
			Edits:  []Edit{{"coordinator/raftnode/store.go", "\t\tcase seen.Add(1) >= ticks:\n", "\t\tcase seen.Add(1) >= 1000*ticks:\n"}},
			Caught: []Checker{stores},
		},
		{
			Name:   "a-hole-in-the-log-is-no-damage",
			Edits:  []Edit{{"coordinator/raftnode/store.go", `case missing && s.isHole(index, deletions):`, `case missing && s.isHole(index, deletions) && index == 0:`}},
			Caught: []Checker{stores},
		},
		{
			Name:   "an-empty-folder-founds-a-cluster-alone",
			Edits:  []Edit{{"coordinator/raftnode/bootstrap.go", `if f.named && unborn >= len(f.Peers)/2+1 {`, `if f.named && unborn >= 1 {`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "Form|Found|Bootstrap|Empty|Peers"}},
		},
		{
			Name:   "a-wiped-replica-votes-again",
			Edits:  []Edit{{"coordinator/raftnode/admission.go", `ok && known != peer.Instance {`, `ok && known == "" {`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "."}},
		},
	}
}
