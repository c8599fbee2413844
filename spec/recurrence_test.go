package spec

import (
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/calendar"
)

func TestAScheduleKeepsTheTextsThatItsCalendarWasReadFrom(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]Recurrence{
		"full.yaml": {
			Cron: []string{"30 2 * * *", "0 12 * * SUN"}, Zone: "Europe/Berlin", Gap: calendar.SkipGap, Repeat: calendar.Twice,
			Jitter: 5 * time.Minute, From: "2026-03-27", Until: "2026-12-31", Except: []string{"2026-03-28", "2026-03-31T02:30"},
		},
		"every.yaml":  {Every: 10 * time.Minute, Zone: "Europe/Berlin", From: "2026-03-29T01:55"},
		"at.json":     {At: []string{"2026-12-25T08:00", "2027-01-01T00:00:00+01:00"}, Zone: "America/New_York"},
		"params.yaml": {Cron: []string{"0 4 * * *"}, Zone: "Asia/Kolkata"},
	} {
		text, err := os.ReadFile("testdata/schedules/" + file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := ParseSchedule(file, text, Options{Now: spring})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(s.Recurrence, want) {
			t.Errorf("%s has %+v, want %+v", file, s.Recurrence, want)
		}
	}
}

// Else setting a schedule again with a default spelled out would replace it.
func TestADefaultThatIsWrittenChangesNoRecurrence(t *testing.T) {
	t.Parallel()
	const job = "job: {name: x, tasks: [{id: a, run: x}]}\n"
	short, err := ParseSchedule("f", []byte(job+"schedule: {cron: \"@daily\"}\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	long, err := ParseSchedule("f", []byte(job+
		"schedule: {cron: [\"@daily\"], timezone: UTC, jitter: 0s, dst: {gap: run-after, repeat: once}}\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(short.Recurrence, long.Recurrence) {
		t.Errorf("got %+v and %+v", short.Recurrence, long.Recurrence)
	}
}
