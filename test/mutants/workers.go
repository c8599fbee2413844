package mutants

// inWorkers returns the mistakes in the worker and its sessions.
func inWorkers() []Mutant {
	return []Mutant{
		{
			Name:   "a-welcomed-session-ends-for-an-earlier-leader",
			Edits:  []Edit{{"worker/successor.go", "return !s.welcomed || found.term > s.w.fence.message().GetTerm()", "return !s.welcomed || found.term > 0"}},
			Caught: []Checker{{Package: "./worker", Run: "TestAWelcomedWorkerLeavesOnly"}},
		},
		{
			Name:   "a-late-worker-waits-for-a-replica-that-hangs",
			Edits:  []Edit{{"worker/connect.go", "return f.failures >= lateFailures", "return false"}},
			Caught: []Checker{{Package: "./worker", Run: "TestAReplicaThatHangsDoesNotDelay"}},
		},
		{
			Name:   "a-deposed-leader-is-obeyed",
			Edits:  []Edit{{"worker/session.go", `if err := s.w.fence.admit(m.GetFence()); err != nil {`, `if err := s.w.fence.admit(m.GetFence()); err != nil && m.GetWelcome() != nil {`}},
			Caught: []Checker{{Package: "./worker", Run: "LowerTerm|Foreign"}},
		},
		{
			Name:   "leases-do-not-end",
			Edits:  []Edit{{"worker/lease.go", `if left := time.Until(l.expires); left > 0 {`, `if left := max(time.Until(l.expires), time.Hour); left > 0 {`}},
			Caught: []Checker{{Package: "./worker", Run: "Lease"}},
		},
		{
			Name:   "a-late-answer-confirms-from-its-arrival",
			Edits:  []Edit{{"worker/session.go", `s.w.attempts.confirm(sent, s.freshness)`, `s.w.attempts.confirm(time.Now(), s.freshness)`}},
			Caught: []Checker{{Package: "./worker", Run: "Confirms"}},
		},
		{
			Name:   "an-old-confirmation-starts-attempts",
			Edits:  []Edit{{"worker/attempt_table.go", `if !t.confirmed.fresh(now) {`, `if false {`}, {"worker/attempt_table.go", `a.begun = t.confirmed.fresh(time.Now()) ||`, `a.begun = true ||`}},
			Caught: []Checker{{Package: "./worker", Run: "Confirm|LostItsLeader"}},
		},
		{
			Name:   "a-supervisor-starts-a-program-too-late",
			Edits:  []Edit{{"worker/process/supervisor_linux.go", `if o.StartBefore != 0 && Monotonic() >= o.StartBefore {`, `if o.StartBefore < 0 {`}},
			Caught: []Checker{{Package: "./worker/process", Run: "TooLate"}},
		},
		{
			Name:   "stops-wait-while-assignments-flow",
			Edits:  []Edit{{"coordinator/session/session.go", `x.stops[0].after <= x.sent {`, `x.assigned <= x.sent {`}},
			Caught: []Checker{{Package: "./coordinator/session", Run: "AStopDoesNotWait"}},
		},
		{
			Name:   "a-stop-overtakes-its-assignment",
			Edits:  []Edit{{"coordinator/session/session.go", `x.stops[0].after <= x.sent {`, `x.sent <= x.assigned {`}},
			Caught: []Checker{{Package: "./coordinator/session", Run: "AStopDoesNotWait|WelcomeComes"}},
		},
		{
			Name:   "a-closed-session-answers-heartbeats",
			Edits:  []Edit{{"coordinator/session/mux_stream.go", `if slot.ended.Load() || slot.ctx.Err() != nil {`, `if slot.ended.Load() {`}},
			Caught: []Checker{{Package: "./coordinator/session", Run: "ClosedSession"}},
		},
		{
			Name:   "reports-are-sent-once",
			Edits:  []Edit{{"worker/outbox.go", `t.sent, t.requestsDue = 0, len(t.requesting) > 0`, `t.requestsDue = len(t.requesting) > 0`}},
			Caught: []Checker{{Package: "./worker", Run: "Repeated|Outlive"}},
		},
		{
			Name:   "an-assignment-that-comes-twice-runs-twice",
			Edits:  []Edit{{"worker/attempt_table.go", "\t\tif t.known[a.ref] != nil {\n\t\t\tcontinue\n\t\t}\n", ""}},
			Caught: []Checker{{Package: "./worker", Run: "Twice"}},
		},
		{
			Name: "a-stolen-attempt-begins-here-too",
			Edits: []Edit{{
				"worker/attempt_table.go",
				"a.phase == phaseReady && !a.exclusive {\n\t\t\tt.endLocked(a, released(\"another worker",
				"a.phase == phaseReady && !a.exclusive {\n\t\t\tgiven, shared, policy := a.assignment, a.jobContext, a.policy\n\t\t\tdefer func() { a.phase, a.assignment, a.jobContext, a.policy = phaseReady, given, shared, policy }()\n\t\t\tt.endLocked(a, released(\"another worker",
			}},
			Caught: []Checker{{Package: "./worker", Run: "Stolen"}},
		},
		{
			Name:   "a-stop-after-the-end-wins",
			Edits:  []Edit{{"worker/attempt_table.go", `if a.phase != phaseCommitted && outcome`, `if a.phase != phaseEnded && outcome`}},
			Caught: []Checker{{Package: "./worker", Run: "."}},
		},
	}
}
