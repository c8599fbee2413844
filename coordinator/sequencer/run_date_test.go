package sequencer

import (
	"testing"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestTheDateOfARunIsThatOfItsTimeZone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, tick, want string }{
		{"UTC", "2026-03-28T23:30:00Z", "2026-03-28"},
		{"Europe/Berlin", "2026-03-28T23:30:00Z", "2026-03-29"},
		{"America/New_York", "2026-03-29T03:59:59Z", "2026-03-28"},
		{"Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29"},
		{"Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-31"}, // a day that does not exist there
		{"", "2026-03-28T23:30:00Z", ""},
		{"Mars/Olympus", "2026-03-28T23:30:00Z", ""},
	} {
		at, err := time.Parse(time.RFC3339, c.tick)
		if err != nil {
			t.Fatal(err)
		}
		run := &dtaskv1.ScheduledRun{Schedule: "x", TickMs: at.UnixMilli(), Timezone: c.zone}
		if got := DatedRun(run); got.GetDate() != c.want || got.GetSchedule() != "x" || got.GetTickMs() != run.GetTickMs() {
			t.Errorf("%s in %s: got %v, want %s", c.tick, c.zone, got, c.want)
		}
		if run.GetDate() != "" {
			t.Error("the run was changed")
		}
	}
	if got := DatedRun(&dtaskv1.ScheduledRun{Timezone: "UTC", Manual: true}); got.GetDate() != "" {
		t.Errorf("a run without a tick: got %v", got)
	}
	if DatedRun(nil) != nil {
		t.Error("no run has become one")
	}
}
