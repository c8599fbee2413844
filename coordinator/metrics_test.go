package coordinator

import (
	"fmt"
	"maps"
	"testing"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/scheduler"
)

func TestSeriesOfDeadLettersAndLimitsAreBounded(t *testing.T) {
	t.Parallel()
	counts := map[string]int{"often": 100, "run": 7}
	for i := range 60 {
		counts[fmt.Sprintf("type%02d", i)] = 1
	}
	got := mostFrequent(counts)
	if len(got) != 51 || got["often"] != 100 || got["run"] != 7 || got["type47"] != 1 || got[sequencer.OtherTypes] != 12 {
		t.Errorf("got %d series: %v", len(got), got)
	}
	if got := mostFrequent(nil); !maps.Equal(got, map[string]int{sequencer.OtherTypes: 0}) {
		t.Errorf("without dead letters: %v", got)
	}
}

func TestSlotsAreWantedByAttemptsAndByReadyTasksOfAllPriorities(t *testing.T) {
	t.Parallel()
	totals := sequencer.NewTotals()
	if got := slotsWanted(totals); got != 0 {
		t.Errorf("without tasks: got %v", got)
	}
	totals.Held.Store(3)
	for p := scheduler.Low; p <= scheduler.Urgent; p++ {
		totals.Depth[p].Store(10)
	}
	totals.Unplaceable.Store(5)
	if got := slotsWanted(totals); got != 43 {
		t.Errorf("got %v, want 43", got)
	}
}
