package mutants

// inCalendar returns the mistakes with the times at which schedules fire.
func inCalendar() []Mutant {
	const rules, schedule = "internal/calendar/rules.go", "internal/calendar/schedule.go"
	caught := []Checker{{Package: "./internal/calendar", Run: "AroundATransition|OfWholeYears|PreviewsMark|TicksGrow|RarestTick|ManyWays"}}
	return []Mutant{
		{
			Name:   "a-time-that-occurs-twice-fires-twice",
			Edits:  []Edit{{rules, "return occurrences(r.zone, c)[0] < at", "return false"}},
			Caught: caught,
		},
		{
			Name:   "every-shift-is-an-hour",
			Edits:  []Edit{{rules, "s.next(before.civil(seg.start)); c < seg.civil(seg.start);", "s.next(max(before.civil(seg.start), seg.civil(seg.start)-3600)); c < seg.civil(seg.start);"}},
			Caught: caught,
		},
		{
			Name:   "intervals-fire-once-in-a-repeat",
			Edits:  []Edit{{rules, "if r.e.interval || r.repeat == Twice || !r.occurredBefore(seg, c) {", "if r.repeat == Twice || !r.occurredBefore(seg, c) {"}},
			Caught: caught,
		},
		{
			Name:   "both-day-fields-must-match",
			Edits:  []Edit{{"internal/calendar/cron_parse.go", "e.eitherDay = restricted == 2", "e.eitherDay = restricted > 2"}},
			Caught: caught,
		},
		{
			Name:   "a-search-skips-the-shifts-before-its-hit",
			Edits:  []Edit{{rules, "from = max(from, int64(s.hit)-maxOffset)", "from = max(from, int64(s.hit))"}},
			Caught: caught,
		},
		{
			Name: "jitter-from-a-random-source",
			Edits: []Edit{
				{schedule, "\"crypto/sha256\"", "\"crypto/rand\"\n\t\"crypto/sha256\""},
				{schedule, "[]byte(s.name + ", "[]byte(rand.Text() + "},
			},
			Caught: []Checker{{Package: "./internal/calendar", Run: "JitterDependsOnNameAndTick"}},
		},
		{
			Name:   "time-zones-end-with-a-leap-year",
			Edits:  []Edit{{"internal/zoneinfo/transitions.go", "if next.Offset != b.Offset {", "if next.Offset != b.Offset || b.End > 0 {"}},
			Caught: []Checker{{Package: "./internal/zoneinfo", Run: "BoundsEnd|TransitionsAre"}},
		},
	}
}
