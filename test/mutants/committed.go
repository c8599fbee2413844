package mutants

// inCommitted returns the planted bugs of what keeps committed entries when data
// directories are replaced by older copies.
func inCommitted() []Mutant {
	return []Mutant{
		{
			Name:   "the-committed-index-is-not-persisted-with-an-entry",
			Edits:  []Edit{{"coordinator/logstore/committed.go", `if index > 0 && len(logs) > 0 {`, `if index > 0 && len(logs) > 1<<20 {`}},
			Caught: []Checker{{Package: "./coordinator/logstore", Run: "TheCommittedIndex"}},
		},
		{
			Name:   "the-committed-index-is-lost-with-the-last-entries",
			Edits:  []Edit{{"coordinator/logstore/committed.go", `if err == nil && last >= end {`, `if err == nil && last > end {`}},
			Caught: []Checker{{Package: "./coordinator/logstore", Run: "TheCommittedIndexSurvives"}},
		},
		{
			Name:   "an-idle-replica-does-not-persist-the-committed-index",
			Edits:  []Edit{{"coordinator/raftnode/conflict.go", `if index == seen && n.store.StoreCommitted() != nil {`, `if index < seen && n.store.StoreCommitted() != nil {`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "LacksItsCommitted"}},
		},
		{
			Name:   "committed-entries-are-deleted",
			Edits:  []Edit{{"coordinator/raftnode/conflict.go", `if lost > min(last, committed) {`, `if lost > 0 {`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "CommittedEntriesAreNotDeleted"}},
		},
		{
			Name:   "a-replica-does-not-wait-for-all-others-after-a-crash",
			Edits:  []Edit{{"coordinator/membership/staleness.go", `check.wait = c.Scale.Scale(verifyTimeout)`, `check.wait = 0 * c.Scale.Scale(verifyTimeout)`}},
			Caught: []Checker{{Package: "./test/simulation", Run: "ARolledBackDirectory"}},
		},
		{
			Name:   "a-leader-with-another-history-is-followed",
			Edits:  []Edit{{"coordinator/raftnode/conflict.go", `return entry.Term != term || sum != nil && !bytes.Equal(entry.Extensions, sum)`, `return len(sum) < 0 && bytes.Equal(entry.Extensions, sum)`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "ContradictsACommittedEntry"}},
		},
		{
			Name:   "a-later-snapshot-of-another-history-is-installed",
			Edits:  []Edit{{"coordinator/raftnode/conflict.go", `lost := received.terms.lacks(&own)`, "own = received.terms\n\tlost := received.terms.lacks(&own)"}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "ALaterSnapshotOfAnotherHistory"}},
		},
		{
			Name:   "a-snapshot-with-fewer-commands-is-not-compared",
			Edits:  []Edit{{"coordinator/raftnode/conflict.go", `own, committed, err := n.committedHistory()`, "if received.index <= n.fsm.applied.Load() {\n\t\treturn nil\n\t}\n\town, committed, err := n.committedHistory()"}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "SnapshotWithFewerCommands"}},
		},
		{
			Name:   "entries-that-the-own-snapshot-has-are-read-from-the-log",
			Edits:  []Edit{{"coordinator/raftnode/conflict.go", `max(applied, covered)+1`, `applied+1`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "InstalledAfterOneThatEndsWithReads"}},
		},
		{
			Name:   "an-entry-directly-after-a-snapshot-stays",
			Edits:  []Edit{{"coordinator/raftnode/conflict.go", `a.PrevLogEntry == at && a.PrevLogTerm == term {`, `a.PrevLogEntry == 0 && a.PrevLogTerm == term {`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "DirectlyAfterASnapshot"}},
		},
		{
			Name:   "a-request-without-entries-is-not-compared-with-the-snapshot",
			Edits:  []Edit{{"coordinator/raftnode/conflict.go", `if at > 0 && a.PrevLogEntry == at`, `if len(a.Entries) > 0 && a.PrevLogEntry == at`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "WithoutEntriesContinues"}},
		},
		{
			Name:   "an-overtaken-snapshot-is-another-history",
			Edits:  []Edit{{"coordinator/raftnode/conflict.go", `if last < committed {`, `if last+1 < 1 {`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "ThatWasOvertaken"}},
		},
		{
			Name:   "a-directory-with-a-conflict-is-opened",
			Edits:  []Edit{{"coordinator/raftnode/open.go", `if conflict != nil {`, `if conflict != nil && conflict.Committed == 0 {`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "RefusesToLoseCommittedEntries"}},
		},
		{
			Name:   "a-directory-is-accepted-unverified-without-a-report",
			Edits:  []Edit{{"coordinator/membership/staleness.go", `return false, r.missing, nil // they`, `return false, nil, nil // they`}},
			Caught: []Checker{{Package: "./coordinator/membership", Run: "AcceptedAfterACrash"}},
		},
		{
			Name:   "a-directory-is-verified-by-the-command-line",
			Edits:  []Edit{{"coordinator/membership/join.go", `if len(known) == 0 {`, `if len(known) >= 0 {`}},
			Caught: []Checker{{Package: "./coordinator/membership", Run: "VerifiedByTheMembers"}},
		},
		{
			Name:   "a-term-that-was-used-twice-is-one-term",
			Edits:  []Edit{{"coordinator/raftnode/terms.go", `s.first == other.first && s.sum == other.sum`, `s.term == other.term`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "ATermThatWasUsedTwice"}},
		},
		{
			Name:   "a-snapshot-that-is-sent-again-is-refused",
			Edits:  []Edit{{"coordinator/raftnode/conflict.go", `known && term == a.LastLogTerm {`, `known && term < a.LastLogTerm {`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "SendsASnapshotAgain"}},
		},
	}
}
