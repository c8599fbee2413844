package sequencer

import (
	"testing"

	"github.com/dtask/dtask/fsm"
)

func TestTheBucketsOfANewLeaderAreEmpty(t *testing.T) {
	t.Parallel()
	r := testSequencer(t).dispatch.policies.rates
	l := fsm.LimitSettings{Rate: 1, PeriodMS: 1000, Burst: 5}
	if n := r.add("api", l).whole(); n != 0 {
		t.Errorf("got %d tokens, want none: the former leader may have used them", n)
	}
	r.set["tenant/*"] = true
	if n := r.add("tenant/acme", l).whole(); n != 5 {
		t.Errorf("got %d tokens of a limit that was set in this term, want 5", n)
	}
}
