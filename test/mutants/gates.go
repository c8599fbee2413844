package mutants

// inGates returns the mistakes with which a job starts early, twice or never, or expires
// although it must not.
func inGates() []Mutant {
	const gates = "coordinator/sequencer/gates.go"
	return []Mutant{
		{
			Name:   "a-job-starts-before-its-time",
			Edits:  []Edit{{"fsm/op_gate.go", "j.waiting() || s.now < startMS(j.header, j.submitted):", "j.waiting():"}},
			Caught: []Checker{{Package: "./fsm", Run: "AGateOpensOnce|AgreesWithItsReferenceModel"}},
		},
		{
			Name:   "the-time-to-expire-begins-with-each-term",
			Edits:  []Edit{{gates, "	g.addExpiry(b, job)\n	if job.Gated", "	late := *job\n	late.RevivedMS = b.entry.NowMS()\n	g.addExpiry(b, &late)\n	if job.Gated"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "AJobOfWhichNoTaskHasStarted"}},
		},
		{
			Name:   "a-job-that-has-started-expires",
			Edits:  []Edit{{"fsm/op_gate.go", "at == 0 || j.started != 0 || s.now < at", "at == 0 || s.now < at"}},
			Caught: []Checker{{Package: "./fsm", Run: "AJobExpiresOnlyBefore|AgreesWithItsReferenceModel"}},
		},
		{
			Name:   "a-new-leader-forgets-the-jobs-that-start-later",
			Edits:  []Edit{{gates, "	if job.Gated && !job.Waiting {\n		g.wait(", "	if job.Gated && !job.Waiting && false {\n		g.wait("}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "AJobStartsAtItsTime"}},
		},
		{
			Name:   "a-job-starts-by-any-clock",
			Edits:  []Edit{{gates, "	case !g.cfg.ClockAgrees():\n		g.timers.add(timer{at: b.now.Add(g.cfg.TimeScale.Scale(gateRetry)), kind: timerGate", "	case false:\n		g.timers.add(timer{at: b.now.Add(g.cfg.TimeScale.Scale(gateRetry)), kind: timerGate"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "AClockThatIsSetStartsNoJob"}},
		},
	}
}
