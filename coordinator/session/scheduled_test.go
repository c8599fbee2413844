package session

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestTheCommandsOfARunKnowItsTick(t *testing.T) {
	t.Parallel()
	own := map[string]string{"A": "1"}
	for what, x := range map[string]struct {
		run  *dtaskv1.ScheduledRun
		want map[string]string
	}{
		"no run":        {nil, own},
		"a run by hand": {&dtaskv1.ScheduledRun{Manual: true}, own},
		"the first run": {&dtaskv1.ScheduledRun{TickMs: 1_790_000_000_000}, map[string]string{"A": "1", "DTASK_SCHEDULED_AT": "2026-09-21T14:13:20Z"}},
		"a later run": {&dtaskv1.ScheduledRun{TickMs: 1_790_000_000_000, PreviousMs: 1_789_999_940_000}, map[string]string{
			"A": "1", "DTASK_SCHEDULED_AT": "2026-09-21T14:13:20Z", "DTASK_SCHEDULED_PREVIOUS": "2026-09-21T14:12:20Z",
		}},
	} {
		h := &dtaskv1.JobHeader{Env: own, Run: x.run}
		if diff := cmp.Diff(x.want, jobEnv(h)); diff != "" || len(own) != 1 {
			t.Errorf("%s: %s", what, diff)
		}
	}
}
