package cli

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestAWaitingCommandReportsEachReasonOfAStallOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var notes []string
		why, failure := "no worker is up", error(nil)
		r := &stallReporter{
			reason: func(context.Context) (string, error) { return why, failure },
			note:   func(text string) { notes = append(notes, text) },
		}
		stop := r.start(t.Context())
		defer stop()
		next := func(counts map[string]uint32) {
			r.observe(&dtaskv1.Job{TasksByState: counts})
			time.Sleep(stallInterval)
			synctest.Wait()
		}
		pending := map[string]uint32{"pending": 2}
		next(map[string]uint32{"blocked": 1})
		next(map[string]uint32{"pending": 2, "running": 1})
		next(map[string]uint32{"pending": 2, "assigned": 1})
		if len(notes) > 0 {
			t.Fatalf("got the notes %q while tasks run or none is pending", notes)
		}
		next(pending)
		next(pending)
		why = ""
		next(pending)
		why = "no worker is up"
		next(pending)
		why, failure = "", errors.New("no leader")
		next(pending)
		why, failure = "no worker that is up has 64 cpu", nil
		next(pending)
		if want := []string{"no worker is up", "no worker that is up has 64 cpu"}; !slices.Equal(notes, want) {
			t.Errorf("got the notes %q, want %q", notes, want)
		}
	})
}

func TestAWaitingCommandReportsUntilWhenItsJobIsScheduled(t *testing.T) {
	t.Parallel()
	r := &stallReporter{}
	r.observe(&dtaskv1.Job{Id: "9", ScheduledUntil: 1_798_182_000_000})
	if got, want := r.why(t.Context()), "job 9: scheduled until 2026-12-25T07:00:00Z"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.observe(&dtaskv1.Job{Id: "9"})
	if got := r.why(t.Context()); got != "" {
		t.Errorf("after that time: got %q", got)
	}
}

func TestAWaitingCommandReportsForWhichJobsItsJobWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var notes []string
		r := &stallReporter{note: func(text string) { notes = append(notes, text) }}
		stop := r.start(t.Context())
		defer stop()
		completed := dtaskv1.JobState_JOB_STATE_COMPLETED
		for _, ended := range []dtaskv1.JobState{0, 0, completed} {
			r.observe(&dtaskv1.Job{Id: "9", Waiting: true, Needs: []*dtaskv1.JobNeed{{Job: 7, EndedAs: ended}, {Job: 8, Condition: dtaskv1.Condition_CONDITION_ENDED}}})
			time.Sleep(stallInterval)
			synctest.Wait()
		}
		if want := []string{"job 9 waits for job 7, job 8 when ended", "job 9 waits for job 8 when ended"}; !slices.Equal(notes, want) {
			t.Errorf("got the notes %q, want %q", notes, want)
		}
	})
}
