package mutants

// inBackup returns the planted bugs of backups and of clusters that are restored from them.
func inBackup() []Mutant {
	return []Mutant{
		{
			Name:   "the-last-frame-of-keys-is-not-restored",
			Edits:  []Edit{{"fsm/encoded_keys.go", "	if n > 0 {\n", "	if n == keysPerFrame {\n"}},
			Caught: []Checker{{Package: "./fsm", Run: "ReadToBeRewritten"}},
		},
		{
			Name:   "a-checksum-lacks-what-was-read-ahead",
			Edits:  []Edit{{"internal/backup/ahead.go", "	a.sum.Write(b[:covered])\n", ""}},
			Caught: []Checker{{Package: "./internal/backup", Run: "HashedWithoutItsEndFrame"}},
		},
		{
			Name:   "a-restored-cluster-keeps-its-epoch",
			Edits:  []Edit{{"fsm/restoration.go", `s.epoch += restoredEpochs // no`, `// no`}},
			Caught: []Checker{{Package: "./fsm", Run: "RestoredBackupIsANewCluster"}},
		},
		{
			Name: "a-token-is-kept-by-a-restore",
			Edits: []Edit{{"fsm/restoration.go", `	case RoleAdmin, RoleOperator, RoleSubmitter, RoleReader, RoleMetrics, numRoles:
		return r.KeepTokens`, `	case RoleAdmin, RoleOperator, RoleSubmitter, RoleReader, RoleMetrics, numRoles:
		return true`}},
			Caught: []Checker{{Package: "./fsm", Run: "DropsTokens"}},
		},
		{
			Name: "a-join-token-is-kept-by-a-restore",
			Edits: []Edit{{"fsm/restoration.go", `	if !r.KeepTokens {
		done.JoinTokens`, `	if r.DropWorkers {
		done.JoinTokens`}},
			Caught: []Checker{{Package: "./fsm", Run: "DropsTokens"}},
		},
		{
			Name: "a-restored-attempt-stays-live",
			Edits: []Edit{{"fsm/restoration.go", `	done.Requeued = s.requeueAll()
`, ``}},
			Caught: []Checker{{Package: "./fsm", Run: "WhatRanIsReady"}},
		},
		{
			Name:   "a-restored-at-most-once-task-runs-again",
			Edits:  []Edit{{"fsm/restoration.go", `if !r.KeepAtMostOnce {`, `if r.KeepAtMostOnce {`}},
			Caught: []Checker{{Package: "./fsm", Run: "WhatRanIsReady|AtMostOnceTaskThatMayRun"}},
		},
		{
			Name: "a-restored-cluster-repeats-log-indexes",
			Edits: []Edit{{"fsm/recovery.go", `	m.index += recoveryGap
`, ``}},
			Caught: []Checker{{Package: "./fsm", Run: "RestoredBackupIsANewCluster|RecoveredState"}},
		},
		{
			Name:   "a-backup-is-restored-over-data",
			Edits:  []Edit{{"coordinator/offline/restore.go", `case len(entries) > 0:`, `case len(entries) < 0:`}, {"coordinator/offline/restore.go", `os.Remove(path) // fails`, `os.RemoveAll(path) // fails`}},
			Caught: []Checker{{Package: "./coordinator/offline", Run: "NotRestoredOverData"}},
		},
		{
			Name: "half-a-backup-is-restored",
			Edits: []Edit{{"coordinator/offline/restore_history.go", `	if err != nil {
		w.Discard()
`, `	if err != nil && !IsBackupDamage(err) {
		w.Discard()
`}},
			Caught: []Checker{{Package: "./coordinator/offline", Run: "WhatIsNotRestored"}},
		},
		{
			Name: "a-damaged-import-looks-complete",
			Edits: []Edit{{"coordinator/history/import.go", `			complete = false
			_ = s.h.importFailed(err) // logs it
`, `			_ = s.h.importFailed(err) // logs it
`}},
			Caught: []Checker{{Package: "./coordinator/history", Run: "DamagedJobsToImport"}},
		},
		{
			Name:   "an-imported-job-that-expired-is-still-read",
			Edits:  []Edit{{"coordinator/history/import.go", `(!ok || !g.From.before(r.Position))`, `(!ok || g.To == 0)`}},
			Caught: []Checker{{Package: "./coordinator/history", Run: "JobsExpireWhile"}},
		},
		{
			Name: "a-backup-without-its-history-files-is-restored",
			Edits: []Edit{{"coordinator/offline/backup.go", `	if !complete {
		return refused("history`, `	if !complete && len(chain) > 0 {
		return refused("history`}},
			Caught: []Checker{{Package: "./coordinator/offline", Run: "ThatLacksHistory"}},
		},
		{
			Name: "a-backup-repeats-the-history-of-the-one-before",
			Edits: []Edit{{"coordinator/api/backup.go", `		from.Job = math.MaxUint64 // all`, `		from = history.Position{} // all`}, {"coordinator/api/backup.go", `	"math"
`, ``}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TheHistoryAfterAnother"}},
		},
		{
			Name:   "the-sha-256-of-a-backup-is-not-checked",
			Edits:  []Edit{{"internal/backup/reader.go", `if r.sumUp(); !bytes.Equal(r.totals.SHA256[:], b[16:]) {`, `if r.sumUp(); bytes.Equal(nil, b) {`}},
			Caught: []Checker{{Package: "./internal/backup", Run: "MissingDoubledOrMoved"}},
		},
		{
			Name:   "a-follower-writes-a-backup-without-a-barrier",
			Edits:  []Edit{{"coordinator/api/backup.go", `return s.cfg.Machine.Await(ctx, index)`, `return s.cfg.Machine.Await(ctx, min(index, 1))`}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "WhatWasAcknowledgedBefore"}},
		},
		{
			Name:   "a-backup-that-nobody-reads-keeps-its-replica-from-others",
			Edits:  []Edit{{"coordinator/api/byte_stream.go", `time.NewTimer(streamStallTimeout)`, `time.NewTimer(24 * time.Hour)`}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "NobodyReads"}},
		},
		{
			Name: "a-backup-lacks-history-silently",
			Edits: []Edit{{"coordinator/api/backup.go", `		if !complete {
			return errHistoryIncomplete
		}
`, ``}, {"coordinator/api/backup.go", `if err == nil && !complete {`, `if err != nil && !complete {`}, {"coordinator/api/backup.go", `if a.cfg.History.Incomplete() {`, `if a.cfg.History == nil {`}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "LacksHistory"}},
		},
		{
			Name: "an-incomplete-backup-gets-its-name",
			Edits: []Edit{{"internal/backup/file.go", `		saved.Totals, err = r.Finish(nil)
`, `		saved.Totals, _ = r.Finish(nil)
`}},
			Caught: []Checker{{Package: "./cli", Run: "AnIncompleteBackup"}},
		},
	}
}

// inRevocationsAndEncryption are bugs in what a restore repeats of an audit log, and in
// directories of encrypted backups.
func inRevocationsAndEncryption() []Mutant {
	return []Mutant{
		{
			Name: "a-revocation-after-a-backup-is-forgotten",
			Edits: []Edit{{"fsm/restoration.go", `	done.Revocations = s.revoke(r.Revocations) // first: what is dropped below was known
`, ``}},
			Caught: []Checker{{Package: "./fsm", Run: "RevocationAfterABackup"}},
		},
		{
			Name:   "an-audit-log-of-another-cluster-revokes",
			Edits:  []Edit{{"coordinator/offline/revocations.go", `if cluster != "" && cluster != r.manifest.ClusterID {`, `if cluster != "" && cluster == "-" {`}},
			Caught: []Checker{{Package: "./coordinator/offline", Run: "OnlyTheLinesOfTheCluster|AnAuditLogThatCanNotBeUsed"}},
		},
		{
			Name:   "a-changed-audit-log-revokes",
			Edits:  []Edit{{"internal/audit/chain.go", `case number > 1 && l.prev() != last.Hash:`, `case number > 1 && l.prev() == [32]byte{}:`}},
			Caught: []Checker{{Package: "./internal/audit", Run: "NoPartOfALog"}, {Package: "./coordinator/offline", Run: "AnAuditLogThatCanNotBeUsed"}},
		},
		{
			Name:   "a-state-in-an-encrypted-directory-is-not-encrypted",
			Edits:  []Edit{{"internal/backup/directory.go", `if err := file.encryptTo(d.to, &m); err != nil {`, `if err := file.encryptTo(nil, &m); err != nil {`}},
			Caught: []Checker{{Package: "./internal/backup", Run: "EncryptedDirectoryIsContinued"}},
		},
		{
			Name:   "the-temporary-file-of-an-encrypted-backup-is-not-encrypted",
			Edits:  []Edit{{"internal/backup/directory.go", `if err := file.EncryptTo(to); err != nil {`, `if err := file.EncryptTo(nil); err != nil {`}},
			Caught: []Checker{{Package: "./internal/backup", Run: "TemporaryFile"}},
		},
		{
			Name:   "plain-backups-are-added-to-encrypted-ones",
			Edits:  []Edit{{"internal/backup/directory.go", `if d.cluster != "" && d.encrypted != (len(to) > 0) {`, `if d.cluster == "-" && d.encrypted != (len(to) > 0) {`}},
			Caught: []Checker{{Package: "./internal/backup", Run: "AsAWholeOrNotAtAll"}},
		},
	}
}
