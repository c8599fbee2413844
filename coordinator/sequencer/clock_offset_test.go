package sequencer

import (
	"testing"
	"time"
)

// clocksAt returns a batch that starts after some time of a term, while the wall clock is ahead.
func clocksAt(passed, ahead time.Duration) *batch {
	return &batch{at: monoTime(passed), wall: time.Unix(1_000_000, 0).Add(passed + ahead)}
}

func TestAClockThatIsSetIsNoticedOnce(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"forward": maxClockStep + 1, "back": -maxClockStep - 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := offsetOf(clocksAt(0, 0))
			if b := clocksAt(time.Hour, 0); o.isMoved(b) || o.follow(b) {
				t.Error("moved although an hour has passed by both clocks")
			}
			if b := clocksAt(time.Hour, step); !o.isMoved(b) || !o.follow(b) {
				t.Errorf("not moved by %v", step)
			}
			if b := clocksAt(2*time.Hour, step); o.isMoved(b) || o.follow(b) {
				t.Error("moved although the clock was not set again")
			}
			if b := clocksAt(2*time.Hour, 0); !o.follow(b) {
				t.Error("not moved although the clock was set to what it was")
			}
		})
	}
}

func TestSmallStepsOfTheClockAddUp(t *testing.T) {
	t.Parallel()
	o := offsetOf(clocksAt(0, 0))
	if b := clocksAt(time.Hour, maxClockStep); o.follow(b) {
		t.Errorf("moved by %v, which is not too far", maxClockStep)
	}
	if b := clocksAt(2*time.Hour, maxClockStep+1); !o.follow(b) {
		t.Error("not moved although two steps are too far together")
	}
}
