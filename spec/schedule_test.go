package spec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// spring is some days before clocks are set forward in Europe.
var spring = time.Date(2026, 3, 27, 0, 0, 0, 0, time.UTC)

func TestFilesWithAScheduleBecomeSchedules(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/schedules/*.[yj]*")
	if err != nil || len(files) < 4 {
		t.Fatalf("found %d files, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := ParseSchedule(file, text, Options{Now: spring})
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			fmt.Fprintf(&b, "job %s, zone %s, jitter %s, overlap %d, missed %d within %s\n",
				s.Job.GetHeader().GetName(), s.Calendar.Zone(), s.Calendar.Jitter(), s.Overlap, s.Missed, s.MissedWithin)
			for _, tick := range s.Calendar.Preview(spring, 4) {
				fmt.Fprintf(&b, "%s %s\n", tick.At.Format(time.RFC3339), tick.Note)
			}
			golden(t, strings.TrimSuffix(file, filepath.Ext(file))+".golden", b.String())
		})
	}
}

func TestEveryFaultOfAScheduleHasLocationProblemAndAdvice(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/schedule_faults/*.[yj]*")
	if err != nil || len(files) < 30 {
		t.Fatalf("found %d files, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := ParseSchedule(filepath.Base(file), text, Options{Now: spring})
			if s != nil {
				t.Error("a schedule came with the faults")
			}
			for _, f := range faultsOf(t, err) {
				if f.Line < 1 || f.Column < 1 || f.Where == "" || f.What == "" || f.Do == "" {
					t.Errorf("fault %+v is not complete", f)
				}
			}
			golden(t, strings.TrimSuffix(file, filepath.Ext(file))+".txt", err.Error()+"\n")
		})
	}
}

func TestAFileWithAScheduleIsNoJob(t *testing.T) {
	t.Parallel()
	_, err := Parse("nightly.yaml", []byte("job: {name: x, tasks: [{id: a, run: x}]}\nschedule: {cron: \"@daily\"}\n"), Options{})
	const want = "nightly.yaml:2:1: schedule: a file with a schedule cannot be submitted; " +
		"dtaskctl schedule set nightly.yaml makes a schedule of it; to run the job once, leave schedule out"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestTheJobOfAScheduleIsThatOfTheSameFileWithoutIt(t *testing.T) {
	t.Parallel()
	text := "job: {name: x, tasks: [{id: a, run: x}]}\n"
	want, err := Parse("f", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSchedule("f", []byte(text+"schedule: {every: 1h}\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := transcript(t, s.Job); got != transcript(t, want) {
		t.Errorf("got %s", got)
	}
}

func TestTheExampleOfAScheduleIsOne(t *testing.T) {
	t.Parallel()
	const path = "../examples/" + scheduleExample
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSchedule(path, text, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ticks := s.Calendar.Preview(time.Date(2026, 12, 24, 12, 0, 0, 0, time.UTC), 2)
	if got := ticks[0].At.Format(time.RFC3339); got != "2026-12-28T02:30:00+01:00" || !strings.Contains(ticks[0].Note, "after 2026-12-25 02:30 (excluded)") {
		t.Errorf("got %v", ticks)
	}
}
