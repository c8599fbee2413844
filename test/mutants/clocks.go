package mutants

// inClocks returns the mistakes with wall clocks that are wrong.
func inClocks() []Mutant {
	return []Mutant{
		{
			Name:   "jobs-and-keys-expire-by-any-clock",
			Edits:  []Edit{{"coordinator/sequencer/retention.go", "trusted := r.cfg.ClockAgrees()", "trusted := true"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestNothingIsEarlyOrExpiresWhileAClockIsWrong"}},
		},
		{
			Name:   "keys-expire-by-the-clock-of-the-leader-that-saw-them",
			Edits:  []Edit{{"coordinator/sequencer/update.go", "return b.clusterMS() + keepUserKey", "return b.entry.NowMS() + keepUserKey"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestAKeyOfALeaderWhoseClockWasBehindIsKept"}},
		},
		{
			Name:   "a-clock-that-is-set-forgets-how-wrong-it-was",
			Edits:  []Edit{{"coordinator/clock.go", "last.skew+(moved-passed).Abs()", "(moved-passed).Abs()"}},
			Caught: []Checker{{Package: "./coordinator", Run: "TestAClockThatIsSetAddsToItsDifference"}},
		},
		{
			Name:   "a-start-time-does-not-follow-a-clock-that-is-corrected",
			Edits:  []Edit{{"coordinator/sequencer/timers.go", "			x.at = b.monotonic(x.due)\n", ""}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestAStartTimeFollowsAClockThatIsCorrected"}},
		},
		{
			Name:   "a-start-time-that-was-set-by-a-clock-in-doubt-is-kept",
			Edits:  []Edit{{"coordinator/sequencer/timers.go", "		t.mixed = true\n", ""}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestAStartTimeFollowsAClockThatIsCorrected"}},
		},
		{
			Name:   "a-start-time-follows-a-clock-in-doubt",
			Edits:  []Edit{{"coordinator/sequencer/timers.go", "!t.offset.isMoved(b) || !b.cfg.ClockAgrees() {", "!t.offset.isMoved(b) {"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestAStartTimeFollowsAClockThatIsCorrected"}},
		},
		{
			Name:   "small-steps-of-the-clock-are-forgotten",
			Edits:  []Edit{{"coordinator/sequencer/clock_offset.go", "	if !o.isMoved(b) {\n", "	if !o.isMoved(b) {\n		*o = offsetOf(b)\n"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestSmallStepsOfTheClockAddUp"}},
		},
		{
			Name:   "a-job-expires-by-any-clock",
			Edits:  []Edit{{"coordinator/sequencer/gates.go", "	case !g.cfg.ClockAgrees():\n", "	case false:\n"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "ALeaderWhoseClockIsAheadLetsNoJobExpire"}},
		},
	}
}
