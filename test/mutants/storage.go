package mutants

// inStorage returns the planted bugs of the log and the stable store.
func inStorage() []Mutant {
	stores := Checker{Package: "./coordinator/logstore", Run: "Store|Entr|Damage|Flip|Disk|Hang|Fail"}
	parallel := Checker{Package: "./coordinator/logstore", Run: "Stored|ALeader"}
	idle := Checker{Package: "./coordinator/transport", Run: "Delayed"}
	waiting := Checker{Package: "./coordinator/transport", Run: "Stored"}
	return []Mutant{
		{
			Name:   "an-acknowledgment-counts-before-the-leader-has-stored-the-entry",
			Edits:  []Edit{{"coordinator/transport/retry.go", `resp.Success && t.log != nil {`, `resp.Success && t.log != nil && n < 0 {`}},
			Caught: []Checker{waiting},
		},
		{
			Name:   "a-deposed-leader-returns-entries-that-it-has-not-stored",
			Edits:  []Edit{{"coordinator/logstore/parallel.go", "\tif p.sharing() {\n\t\treturn nil\n\t}\n\treturn p.WaitStored(index)\n", "\treturn nil\n"}},
			Caught: []Checker{parallel},
		},
		{
			Name:   "the-only-voter-does-not-wait-for-its-disk",
			Edits:  []Edit{{"coordinator/logstore/parallel.go", `if !p.sharing() || slices`, `if p.shares.Load() == nil || slices`}},
			Caught: []Checker{parallel},
		},
		{
			Name:   "a-delayed-request-carries-another-leaders-entries",
			Edits:  []Edit{{"coordinator/transport/idle.go", `t.log.GetLog(index, log) != nil || log.Term != args.Term {`, `t.log.GetLog(index, log) != nil || log.Term > 1<<40 {`}},
			Caught: []Checker{idle},
		},
		{
			Name: "a-failed-write-is-ignored",
			Edits: []Edit{{
				"coordinator/logstore/store.go",
				"\tif err := s.call(\"storing entries\", func() error { return s.backend.StoreLogs(logs) }); err != nil {\n\t\treturn err\n\t}\n",
				"\t_ = s.backend.StoreLogs(logs)\n",
			}},
			Caught: []Checker{stores},
		},
		{
			Name:   "checksums-are-not-compared",
			Edits:  []Edit{{"coordinator/logstore/get.go", "\t\tproblem = Verify(log)\n", "\t\tproblem = \"\"\n"}},
			Caught: []Checker{stores},
		},
		{
			Name:   "received-entries-are-not-verified",
			Edits:  []Edit{{"coordinator/logstore/store.go", `} else if problem := Verify(log); problem != "" {`, `} else if problem := Verify(log); problem != "" && len(log.Data) > 1<<30 {`}},
			Caught: []Checker{stores},
		},
		{
			Name:   "a-hanging-store-is-not-fatal",
			Edits:  []Edit{{"coordinator/logstore/store.go", "\t\tcase seen.Add(1) >= ticks:\n", "\t\tcase seen.Add(1) >= 1000*ticks:\n"}},
			Caught: []Checker{stores},
		},
		{
			Name:   "a-hole-in-the-log-is-not-damage",
			Edits:  []Edit{{"coordinator/logstore/get.go", "\tcase hole:\n", "\tcase hole && index == 0:\n"}},
			Caught: []Checker{stores},
		},
		{
			Name:   "a-commit-index-covers-entries-that-were-not-compared",
			Edits:  []Edit{{"coordinator/transport/inbound.go", `min(args.LeaderCommitIndex, lastMatched(args))`, `min(args.LeaderCommitIndex, lastMatched(args)+1<<40)`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "OlderTail"}},
		},
		{
			Name:   "a-deposed-leader-sends-a-request-of-two-logs",
			Edits:  []Edit{{"coordinator/transport/retry.go", `if !isHeartbeat(args) && !t.maySend(args.Term, id) {`, `if isHeartbeat(args) && !t.maySend(args.Term, id) && len(args.Entries) > 0 {`}},
			Caught: []Checker{{Package: "./coordinator/transport", Run: "Deposed"}},
		},
		{
			Name:   "a-broken-snapshot-transfer-is-left-to-rafts-delays",
			Edits:  []Edit{{"coordinator/transport/snapshot.go", `if err == nil || !rewinds || !isNetworkError(err) {`, `if err == nil || !rewinds || isNetworkError(err) {`}},
			Caught: []Checker{{Package: "./coordinator/transport", Run: "Snapshot"}},
		},
		{
			Name:   "a-snapshot-is-sent-again-without-its-start",
			Edits:  []Edit{{"coordinator/transport/snapshot.go", `seeker.Seek(0, io.SeekStart)`, `seeker.Seek(0, io.SeekCurrent)`}},
			Caught: []Checker{{Package: "./coordinator/transport", Run: "Snapshot"}},
		},
		{
			Name:   "term-and-candidate-of-a-vote-are-stored-one-by-one",
			Edits:  []Edit{{"coordinator/logstore/vote.go", `return bytes.Equal(key, keyVoteTerm) || bytes.Equal(key, keyVoteCandidate)`, `return bytes.Equal(key, keyVoteTerm) && len(key) == 0`}},
			Caught: []Checker{{Package: "./coordinator/logstore", Run: "Vot"}},
		},
		{
			Name:   "an-entry-that-is-replaced-meanwhile-is-a-hole",
			Edits:  []Edit{{"coordinator/logstore/get.go", "if missing, err = s.read(op, index, log); err != nil || !missing {", "if missing = true; err != nil {"}},
			Caught: []Checker{stores},
		},
		{
			Name:   "a-deletion-in-progress-leaves-holes",
			Edits:  []Edit{{"coordinator/logstore/get.go", "return true, inside && started == ended && s", "return true, inside && started >= ended && s"}},
			Caught: []Checker{stores},
		},
	}
}

// inSegments returns the planted bugs of segments, marks and data directories.
func inSegments() []Mutant {
	segments := Checker{Package: "./coordinator/logstore", Run: "Segment|Batch|Mark"}
	tails := Checker{Package: "./coordinator/logstore", Run: "UnreadableRoot|MarkOfRaftDB"}
	kinds := Checker{Package: "./coordinator/raftnode", Run: "AnotherStore"}
	return []Mutant{
		{
			Name:   "unreadable-bytes-end-a-segment",
			Edits:  []Edit{{"coordinator/logstore/wal_segment.go", `if s.torn && s.index == 0 && hasLaterBatch(content, s.end) {`, `if s.torn && s.index == 0 && s.end < 0 {`}},
			Caught: []Checker{segments},
		},
		{
			Name:   "a-log-that-ends-before-its-mark-is-accepted",
			Edits:  []Edit{{"coordinator/logstore/tail.go", `case t.hasMark && t.marked > t.last:`, `case t.hasMark && t.marked > t.last+1<<40:`}},
			Caught: []Checker{segments, tails},
		},
		{
			Name:   "an-unreadable-tail-without-a-mark-is-accepted",
			Edits:  []Edit{{"coordinator/logstore/tail.go", `case t.unreadable != "" && !t.hasMark:`, `case t.unreadable != "" && !t.hasMark && t.path == "":`}},
			Caught: []Checker{tails},
		},
		{
			Name:   "a-transaction-of-raft-db-is-not-recorded",
			Edits:  []Edit{{"coordinator/logstore/bolt_mark.go", "	return m.mark.raise(transaction)", "	return m.mark.raise(min(transaction, m.mark.last))"}},
			Caught: []Checker{tails},
		},
		{
			Name:   "an-unfinished-batch-is-not-erased",
			Edits:  []Edit{{"coordinator/logstore/wal_store.go", `if w.torn == "" {`, `if w.torn != "/" {`}},
			Caught: []Checker{segments},
		},
		{
			Name:   "the-mark-exceeds-the-log",
			Edits:  []Edit{{"coordinator/logstore/wal_store.go", `if last >= end && first <= end {`, `if last > end && first < end {`}},
			Caught: []Checker{segments},
		},
		{
			Name:   "a-full-segment-is-not-sealed",
			Edits:  []Edit{{"coordinator/logstore/wal_store.go", `if contents.wal.fullAt > 0 {`, `if contents.wal.fullAt > 1<<40 {`}},
			Caught: []Checker{segments},
		},
		{
			Name:   "a-data-directory-is-opened-with-the-other-store",
			Edits:  []Edit{{"coordinator/logstore/kind.go", `if have == want || !hasState {`, `if have == want || dir != "" {`}},
			Caught: []Checker{kinds},
		},
		{
			Name:   "an-empty-replica-bootstraps-a-cluster-alone",
			Edits:  []Edit{{"coordinator/membership/bootstrap.go", `if b.named && empty >= len(b.Peers)/2+1 {`, `if b.named && empty >= 1 {`}},
			Caught: []Checker{{Package: "./coordinator/membership", Run: "Decision|StartOrder"}},
		},
		{
			Name:   "a-wiped-replica-is-admitted",
			Edits:  []Edit{{"coordinator/transport/admission.go", `ok && known != peer.Instance {`, `ok && known == "" {`}},
			Caught: []Checker{{Package: "./coordinator/transport", Run: "."}, {Package: "./coordinator/raftnode", Run: "."}},
		},
	}
}
