package mutants

var (
	twins     = Checker{Package: "./fsm", Run: "ReferenceModel"}
	snapshots = Checker{Package: "./fsm", Run: "Snapshot|Restore|GivesOneState"}
	simulated = Checker{Package: "./coordinator/sequencer", Run: "TestNothingAcknowledged"}
)

// inState returns the mistakes in the replicated state.
func inState() []Mutant {
	return []Mutant{
		{
			Name:   "a-repeated-key-changes-the-job-again",
			Edits:  []Edit{{"fsm/precondition.go", `	case known:`, `	case known && p.Digest == [16]byte{}:`}},
			Caught: []Checker{{Package: "./fsm", Run: "TestARetryTakesEffectOncePerKey"}, twins},
		},
		{
			Name:   "a-purge-forgets-its-number-of-dead-letters",
			Edits:  []Edit{{"fsm/precondition.go", `purged: purged, digest`, `digest`}},
			Caught: []Checker{{Package: "./fsm", Run: "TestAPurgeKeepsItsNumber"}, twins},
		},
		{
			Name:   "a-completed-task-forgets-its-attempts",
			Edits:  []Edit{{"fsm/op_complete.go", `r.note = s.recoveredNote(j, it.Index, result)`, `r.note = result`}},
			Caught: []Checker{{Package: "./fsm", Run: "TestAHistoryKeepsTheFirst"}, twins},
		},
		{
			Name:   "a-lost-attempt-began-when-it-ended",
			Edits:  []Edit{{"fsm/op_assign.go", `r.marks, r.started = it.Attempt, it.Worker, marksOf(alternative), s.now`, `r.marks, r.started = it.Attempt, it.Worker, marksOf(alternative), 0`}},
			Caught: []Checker{{Package: "./fsm", Run: "TestALostAttemptBegan"}, twins},
		},
		{
			Name:   "completions-of-any-attempt-count",
			Edits:  []Edit{{"fsm/op_assign.go", `case r.attempt != h.Attempt || r.worker != h.Worker:`, `case r.worker != h.Worker:`}},
			Caught: []Checker{{Package: "./fsm", Run: "TestAZombieCompletesNothing|TestOnlyTheLiveAttempt"}, simulated},
		},
		{
			Name: "attempt-numbers-are-used-again",
			Edits: []Edit{{
				"fsm/op_fail.go",
				"\tr := s.move(j, h.Index, Pending)\n",
				"\tr := s.move(j, h.Index, Pending)\n\tr.attempt--\n",
			}},
			Caught: []Checker{{Package: "./fsm", Run: "TestARevivedTaskKeepsItsNumber|TestACheckpointGoes"}, twins, simulated},
		},
		{
			Name: "apply-reads-the-clock",
			Edits: []Edit{
				{"fsm/transition.go", `import "fmt"`, "import (\n\t\"fmt\"\n\t\"time\"\n)"},
				{"fsm/transition.go", `r.ended, r.note = s.now, note`, `r.ended, r.note = time.Now().UnixMilli(), note`},
			},
			Caught: []Checker{{Package: "./fsm", Run: "TestDigestsAreEqualInOtherProcesses|TestALogGivesOneState"}, twins},
		},
		{
			Name:   "snapshots-depend-on-map-order",
			Edits:  []Edit{{"fsm/keys.go", "\tslices.SortFunc(list,", "\tslices.SortFunc(list[:min(len(list), 0)],"}},
			Caught: []Checker{snapshots},
		},
		{
			Name:   "snapshots-forget-keys",
			Edits:  []Edit{{"fsm/snapshot.go", "\tnumber(c, &k.version)\n", ""}},
			Caught: []Checker{snapshots},
		},
		{
			Name:   "snapshots-forget-cancels",
			Edits:  []Edit{{"fsm/snapshot.go", `e.byte(byte(r.cause))`, `e.byte(0)`}},
			Caught: []Checker{{Package: "./fsm", Run: "TestUserCancellationsSurvive"}, snapshots},
		},
		{
			Name:   "damaged-snapshots-are-restored",
			Edits:  []Edit{{"fsm/restore.go", `if sum != binary.LittleEndian.Uint32(tail) {`, `if sum != binary.LittleEndian.Uint32(tail) && n > maxFrame {`}},
			Caught: []Checker{{Package: "./fsm", Run: "Snapshot|Restore|Frames"}},
		},
		{
			Name:   "half-a-snapshot-is-restored",
			Edits:  []Edit{{"fsm/restore.go", `if d.err == nil && frames != f.frames-1 {`, `if d.err == nil && frames > 1<<62 {`}},
			Caught: []Checker{{Package: "./fsm", Run: "Snapshot|Restore|Frames"}},
		},
		{
			Name:   "fan-in-counts-a-completion-twice",
			Edits:  []Edit{{"fsm/follow.go", "\t\tr.pending--\n", "\t\tr.pending -= min(2, r.pending)\n"}},
			Caught: []Checker{{Package: "./fsm", Run: "TestAFailureCancelsDependents|TestACancelledJobIsRevived"}, twins},
		},
		{
			Name:   "at-most-once-is-repeated",
			Edits:  []Edit{{"fsm/op_fail.go", `if j.records.at(h.Index).marks.startLogged() {`, `if j.records.at(h.Index).marks.startLogged() && lost {`}},
			Caught: []Checker{{Package: "./fsm", Run: "AtMostOnce"}, twins},
		},
		{
			Name:   "retries-are-not-counted",
			Edits:  []Edit{{"fsm/op_fail.go", "\t\t\tr.failures++\n", "\t\t\tr.failures = 0\n"}},
			Caught: []Checker{{Package: "./fsm", Run: "TestFailuresAreCounted"}, twins},
		},
		{
			Name:   "a-stolen-attempt-is-counted-as-a-retry",
			Edits:  []Edit{{"fsm/op_fail.go", "\tif lost {\n\t\tif r.losses", "\tif true {\n\t\tif r.losses"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "RetriesAreFailures"}, twins},
		},
		{
			Name:   "what-depends-on-a-failure-still-runs",
			Edits:  []Edit{{"fsm/follow.go", "stack = append(stack, endedRun{first, n})", "_ = first"}},
			Caught: []Checker{{Package: "./fsm", Run: "TestAFailureCancelsDependents"}, twins},
		},
		{
			Name:   "the-digest-misses-records",
			Edits:  []Edit{{"fsm/transition.go", "\ts.mix(uint64(j.id)<<32 | uint64(i))\n\ts.mixRecord(r)\n", "\ts.mix(uint64(j.id)<<32 | uint64(i))\n"}},
			Caught: []Checker{{Package: "./fsm", Run: "Damaged|Flipped"}},
		},
		{
			Name:   "a-second-copy-is-assigned",
			Edits:  []Edit{{"fsm/op_assign.go", "\tcase r.state != Pending ||", "\tcase r.state != Pending && r.state != Assigned ||"}},
			Caught: []Checker{{Package: "./fsm", Run: "."}},
		},
		{
			Name:   "workers-that-hold-are-forgotten",
			Edits:  []Edit{{"fsm/op_worker.go", `|| s.workers.held[at] != 0:`, `|| s.workers.held[at] < 0:`}},
			Caught: []Checker{{Package: "./fsm", Run: "."}},
		},
		{
			Name:   "draining-workers-get-work",
			Edits:  []Edit{{"fsm/op_assign.go", `|| w.Drains():`, `|| w.Drains() && w.ID == 0:`}},
			Caught: []Checker{{Package: "./fsm", Run: "."}},
		},
	}
}
