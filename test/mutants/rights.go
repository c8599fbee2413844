package mutants

// inRights returns the mistakes by which a caller sees or gets what is not its own.
func inRights() []Mutant {
	return []Mutant{
		{
			Name:   "a-method-has-no-row",
			Edits:  []Edit{{"internal/auth/table.go", "	dtaskv1.AdminService_DiskUsage_FullMethodName:     operate,\n", ""}},
			Caught: []Checker{{Package: "./internal/auth", Run: "TestEveryMethodHasARowAndEveryRowAMethod"}},
		},
		{
			Name:   "a-method-checks-no-job",
			Edits:  []Edit{{"coordinator/api/methods.go", "dtaskv1.JobService_GetResult_FullMethodName:        {accessRead, repeatRead, true, rowsJob},", "dtaskv1.JobService_GetResult_FullMethodName:        {accessRead, repeatRead, true, rowsEach},"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestTheMatrixOfRights"}},
		},
		{
			Name:   "an-inner-hello-is-not-authorized",
			Edits:  []Edit{{"coordinator/session/grant.go", "	if s.cfg.Authorize == nil {", "	if s.cfg.Authorize == nil || h.GetName() != \"\" {"}},
			Caught: []Checker{{Package: "./coordinator/session", Run: "TestEverySessionOfAStream"}},
		},
		{
			Name:   "a-page-counts-foreign-jobs",
			Edits:  []Edit{{"coordinator/api/list_jobs.go", "			return true\n		}\n		p.scanned = maxScannedJobs", "			p.limit--\n			return true\n		}\n		p.scanned = maxScannedJobs"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestAListingHasFullPages"}},
		},
		{
			Name:   "keys-are-global",
			Edits:  []Edit{{"coordinator/api/upload.go", "u.encoder.s.Key = fsm.ScopedKey(u.scope, p.GetIdempotencyKey())", "u.encoder.s.Key = fsm.ScopedKey(\"\", p.GetIdempotencyKey())"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestKeysOfNamespaces"}},
		},
		{
			Name:   "a-namespace-that-the-caller-does-not-have",
			Edits:  []Edit{{"coordinator/api/claim.go", "&& !u.caller.Sees(u.scope):", "&& !u.caller.Sees(u.caller.Home()):"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestAJobIsInANamespace|TestEachJobOfAStream"}},
		},
		{
			Name:   "a-worker-is-selected-by-what-it-announces",
			Edits:  []Edit{{"coordinator/session/grant.go", "!ok || granted != value {", "!ok && granted != value {"}},
			Caught: []Checker{{Package: "./coordinator/session", Run: "TestEverySessionOfAStream"}},
		},
		{
			Name:   "workers-get-tasks-of-all-namespaces",
			Edits:  []Edit{{"scheduler/worker.go", "	if w.serves == nil {", "	if w.serves == nil || n > 0 {"}},
			Caught: []Checker{{Package: "./scheduler", Run: "TestAWorkerGetsNoTask"}, {Package: "./coordinator/session", Run: "TestAWorkerGetsOnly"}},
		},
		{
			Name:   "a-line-of-the-audit-log-is-not-chained",
			Edits:  []Edit{{"internal/audit/record.go", "r.Seq, r.Prev = h.Seq+1, hex.EncodeToString(h.Hash[:])", "r.Seq, r.Prev = h.Seq+1, hex.EncodeToString(make([]byte, len(h.Hash)))"}},
			Caught: []Checker{{Package: "./internal/audit", Run: "TestAnUnchangedLog"}, {Package: "./coordinator/audit", Run: "TestARestartContinues"}},
		},
		{
			Name: "denials-are-counted-with-an-audit-log-only",
			Edits: []Edit{{
				"coordinator/api/audit.go", "	s.CountDenial(s.denialOf(method, cause, err))\n	if s.cfg.Audit == nil {\n		return\n	}\n",
				"	if s.cfg.Audit == nil {\n		return\n	}\n	s.CountDenial(s.denialOf(method, cause, err))\n",
			}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "TestDenialsAreCountedByReason"}},
		},
		{
			Name:   "results-are-reused-across-namespaces",
			Edits:  []Edit{{"fsm/results.go", "		key = n + \"\\x00\" + key\n", "		_ = n\n"}},
			Caught: []Checker{{Package: "./fsm", Run: "TestAResultIsNotReused"}},
		},
	}
}
