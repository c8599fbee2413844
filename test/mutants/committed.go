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
			Edits:  []Edit{{"coordinator/raftnode/conflict.go", `lost := received.terms.lacks(&own)`, `lost := received.terms.lacks(&received.terms)`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "ALaterSnapshotOfAnotherHistory"}},
		},
		{
			Name:   "a-term-that-was-used-twice-is-one-term",
			Edits:  []Edit{{"coordinator/raftnode/terms.go", `s.first == other.first && s.sum == other.sum`, `s.term == other.term`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "WhatAnotherHistoryLacks"}},
		},
		{
			Name:   "a-snapshot-that-is-sent-again-is-refused",
			Edits:  []Edit{{"coordinator/raftnode/conflict.go", `known && term == a.LastLogTerm {`, `known && term < a.LastLogTerm {`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "SendsASnapshotAgain"}},
		},
		{
			Name:   "a-leader-cannot-continue-after-a-stored-snapshot",
			Edits:  []Edit{{"coordinator/raftnode/conflict.go", `for len(a.Entries) > 0 && n.logs`, `for len(a.Entries) > 1<<20 && n.logs`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "SendsASnapshotAgain"}},
		},
	}
}
