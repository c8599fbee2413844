package mutants

// inSchedules returns the mistakes with which a tick runs twice, early, or although it must
// not.
func inSchedules() []Mutant {
	const fire, fsmTests = "fsm/op_fire.go", "ATickFiresOnce|AgreesWithItsReferenceModel"
	return []Mutant{
		{
			Name:   "a-tick-fires-twice-after-a-failover",
			Edits:  []Edit{{fire, "case o.TickMS <= x.AfterMS, x.Ordered", "case o.TickMS < x.AfterMS, x.Ordered"}},
			Caught: []Checker{{Package: "./fsm", Run: fsmTests}},
		},
		{
			Name:   "missed-ticks-count-from-the-stamp-of-the-last-entry",
			Edits:  []Edit{{fire, "x.AfterMS, x.LastCivil, x.runs = o.TickMS,", "x.AfterMS, x.LastCivil, x.runs = max(o.TickMS, s.now),"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "MissedTicksRunByTheirRule"}},
		},
		{
			Name:   "all-missed-ticks-run",
			Edits:  []Edit{{"coordinator/sequencer/missed_ticks.go", "newest, maxMissedRuns) < maxMissedRuns", "newest, maxCounted) < maxCounted"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "OfManyMissedTicks"}},
		},
		{
			Name:   "the-oldest-missed-ticks-run-one-too-many",
			Edits:  []Edit{{"coordinator/sequencer/missed_ticks.go", "range maxMissedRuns - 1 {", "range maxMissedRuns {"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "OfManyMissedTicks"}},
		},
		{
			Name:   "missed-ticks-of-all-schedules-run-at-once",
			Edits:  []Edit{{"coordinator/sequencer/schedules.go", "			t.nextMissed = t.nextMissed.Add(missedInterval)\n", ""}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "MissedTicksOfManySchedules"}},
		},
		{
			Name:   "a-missed-tick-that-is-skipped-takes-the-turn-of-the-next",
			Edits:  []Edit{{"coordinator/sequencer/schedules.go", "		reserved = reserved && m.decision != fsm.TickRuns\n", "		reserved = false\n"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "MissedTicksRunWhileMoreAreMissed"}},
		},
		{
			Name:   "a-wall-clock-time-fires-in-two-zones",
			Edits:  []Edit{{fire, ", x.Ordered && x.LastCivil != 0 && o.Civil <= x.LastCivil:", ":"}},
			Caught: []Checker{{Package: "./fsm", Run: fsmTests}},
		},
		{
			Name: "leaders-with-other-time-zones-fire-one-time-twice",
			Edits: []Edit{
				{fire, ", x.Ordered && x.LastCivil != 0 && o.Civil <= x.LastCivil:", ":"},
				{"coordinator/sequencer/schedules.go", "return x.Ordered && x.LastCivil != 0 && tick.Civil <= x.LastCivil", "return false"},
			},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "NothingAcknowledgedIsLost"}},
		},
		{
			Name:   "a-paused-schedule-fires",
			Edits:  []Edit{{fire, "	case x.IsPaused():\n		return SchedulePaused\n", ""}},
			Caught: []Checker{{Package: "./fsm", Run: fsmTests}},
		},
		{
			Name:   "the-time-of-a-pause-is-missed",
			Edits:  []Edit{{"fsm/op_schedule.go", "x.PausedMS, x.PausedBy, x.PauseReason, x.AfterMS = 0, \"\", \"\", max(x.AfterMS, o.AtMS)", "x.PausedMS, x.PausedBy, x.PauseReason = 0, \"\", \"\""}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "APausedSchedule"}},
		},
		{
			Name:   "a-schedule-trusts-any-clock",
			Edits:  []Edit{{"coordinator/sequencer/schedules.go", "case b.full() || !t.cfg.ClockAgrees() || t.uploads", "case b.full() || t.uploads"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "AClockThatIsSet"}},
		},
		{
			Name:   "schedules-wait-behind-one-without-place-in-memory",
			Edits:  []Edit{{"coordinator/sequencer/schedules.go", "case b.full() || !t.cfg.ClockAgrees() || t.uploads.full() ||", "case b.full() || len(t.blocked) > 0 || !t.cfg.ClockAgrees() || t.uploads.full() ||"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "ALargeScheduleDelaysNoOther"}},
		},
		{
			Name:   "runs-of-one-entry-exceed-the-memory",
			Edits:  []Edit{{"coordinator/sequencer/submit.go", "x.retention.tasks+x.started+uint64(tasks)", "x.retention.tasks+uint64(tasks)"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "SchedulesThatAreDueTogether"}},
		},
		{
			Name:   "a-new-term-forgets-most-schedules",
			Edits:  []Edit{{"coordinator/sequencer/schedules.go", "	t.unarmed = t.unarmed[n:]\n", "	t.unarmed = nil\n"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "EveryScheduleFiresInANewTerm"}},
		},
		{
			Name:   "a-schedule-ends-with-the-token-of-its-owner",
			Edits:  []Edit{{"fsm/op_forget_identities.go", "&& (!needed || i.IsRevoked())", "&& (!needed || true)"}},
			Caught: []Checker{{Package: "./fsm", Run: "TheOwnerOfASchedule"}},
		},
		{
			Name:   "a-replaced-schedule-counts-against-the-limit-of-their-jobs",
			Edits:  []Edit{{"fsm/op_schedule.go", "		bytes -= old.size()\n	}\n	switch {", "		bytes -= 0 * old.size()\n	}\n	switch {"}},
			Caught: []Checker{{Package: "./fsm", Run: "TheJobsOfAllSchedules"}},
		},
		{
			Name:   "there-is-no-limit-of-schedules",
			Edits:  []Edit{{"fsm/op_schedule.go", "bytes > maxTemplates || old == nil && len(t.list) >= maxSchedules:", "bytes > maxTemplates:"}},
			Caught: []Checker{{Package: "./fsm", Run: "AtMostTenThousandSchedules"}},
		},
		{
			Name:   "the-jobs-of-schedules-have-no-limit",
			Edits:  []Edit{{"fsm/op_schedule.go", "bytes > maxTemplates || old == nil && len(t.list)", "old == nil && len(t.list)"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "JobThatIsTooLargeIsRefused"}},
		},
		{
			Name:   "a-backfill-runs-a-tick-that-fires-later",
			Edits:  []Edit{{"coordinator/api/schedule_run.go", "	case to.After(decided) && hasTickBetween(c, decided, to):", "	case to.After(decided) && false:"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "ABackfillStartsEachTickOnce"}},
		},
		{
			Name:   "a-team-sees-the-schedules-of-others",
			Edits:  []Edit{{"coordinator/api/schedules.go", "	if err == nil && !p.Sees(namespace) {", "	if err == nil && !p.Sees(namespace) && false {"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "SchedulesOfOtherNamespaces"}},
		},
		{
			Name:   "a-name-reaches-the-schedules-of-others",
			Edits:  []Edit{{"fsm/schedule.go", "	if IsScoped(name) { // it would", "	if IsScoped(name) && false { // it would"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "ANameReachesNoOtherNamespace"}},
		},
	}
}
