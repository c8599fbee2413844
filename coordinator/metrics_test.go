package coordinator

import (
	"fmt"
	"maps"
	"testing"

	"github.com/dtask/dtask/coordinator/sequencer"
)

func TestSeriesOfDeadLettersAreBounded(t *testing.T) {
	t.Parallel()
	counts := map[string]int{"often": 100, "run": 7}
	for i := range 60 {
		counts[fmt.Sprintf("type%02d", i)] = 1
	}
	got := mostFrequent(counts, 50)
	if len(got) != 51 || got["often"] != 100 || got["run"] != 7 || got["type47"] != 1 || got[sequencer.OtherTypes] != 12 {
		t.Errorf("got %d series: %v", len(got), got)
	}
	if got := mostFrequent(nil, 50); !maps.Equal(got, map[string]int{sequencer.OtherTypes: 0}) {
		t.Errorf("without dead letters: %v", got)
	}
}
