package mutants

// inGates returns the mistakes with which a job starts early, twice or never, or expires
// although it must not.
func inGates() []Mutant {
	const gates, keys = "coordinator/sequencer/gates.go", "coordinator/sequencer/shared_keys.go"
	return []Mutant{
		{
			Name:   "a-key-is-free-at-the-end-of-a-job-and-not-of-its-processes",
			Edits:  []Edit{{keys, "	if workers.isStopping(job.ID) {\n", "	if workers.isStopping(job.ID) && false {\n"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "AKeyIsFree"}},
		},
		{
			Name:   "a-new-leader-does-not-wait-for-workers-that-still-stop",
			Edits:  []Edit{{keys, "	if _, doubt := k.doubts[key]; doubt {\n", "	if _, doubt := k.doubts[key]; doubt && false {\n"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "AKeyIsFree"}},
		},
		{
			Name:   "a-key-lets-one-more-job-run",
			Edits:  []Edit{{"fsm/op_gate.go", "case s.Holders(ConcurrencyKey(j.header)) >= ConcurrencyLimit(j.header):", "case s.Holders(ConcurrencyKey(j.header)) > ConcurrencyLimit(j.header):"}},
			Caught: []Checker{{Package: "./fsm", Run: "JobsWithAKey|AWaitingRun|AgreesWithItsReferenceModel"}},
		},
		{
			Name:   "a-retried-job-keeps-its-gate-open",
			Edits:  []Edit{{"fsm/op_revive.go", "		if again {\n			j.gate = gateClosed\n", "		if again && false {\n			j.gate = gateClosed\n"}},
			Caught: []Checker{{Package: "./fsm", Run: "ARetriedJobWaits|AgreesWithItsReferenceModel"}},
		},
		{
			Name:   "a-job-starts-before-its-time",
			Edits:  []Edit{{"fsm/op_gate.go", "j.waiting() || s.now < startMS(j.header, j.submitted):", "j.waiting():"}},
			Caught: []Checker{{Package: "./fsm", Run: "AGateOpensOnce|AgreesWithItsReferenceModel"}},
		},
		{
			Name:   "the-time-to-expire-begins-with-each-term",
			Edits:  []Edit{{gates, "	g.addExpiry(b, job)\n	g.take(b, job)", "	late := *job\n	late.RevivedMS = b.entry.NowMS()\n	g.addExpiry(b, &late)\n	g.take(b, job)"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "AJobOfWhichNoTaskHasStarted"}},
		},
		{
			Name:   "a-job-that-has-started-expires",
			Edits:  []Edit{{"fsm/op_gate.go", "at == 0 || j.started != 0 || s.now < at", "at == 0 || s.now < at"}},
			Caught: []Checker{{Package: "./fsm", Run: "AJobExpiresOnlyBefore|AgreesWithItsReferenceModel"}},
		},
		{
			Name:   "a-new-leader-forgets-the-jobs-that-start-later",
			Edits:  []Edit{{gates, "	g.addExpiry(b, job)\n	g.take(b, job)", "	g.addExpiry(b, job)"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "AJobStartsAtItsTime"}},
		},
		{
			Name:   "a-job-starts-by-any-clock",
			Edits:  []Edit{{gates, "		case job.StartMS() != 0 && !g.cfg.ClockAgrees():", "		case false:"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "AClockThatIsSetStartsNoJob"}},
		},
		{
			Name:   "a-clock-that-stands-still-adds-a-timer-with-each-sweep",
			Edits:  []Edit{{gates, "ok && !at.Before(set)", "ok && at.Equal(set)"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "AClockThatStandsStill"}},
		},
		{
			Name:   "a-job-may-start-at-its-deadline",
			Edits:  []Edit{{"spec/start_times.go", "after < deadline", "after <= deadline"}},
			Caught: []Checker{{Package: "./spec", Run: "TestDecodedJobIsChecked"}},
		},
	}
}
