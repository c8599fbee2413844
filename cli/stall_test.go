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
