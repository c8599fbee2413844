package sequencer_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestJobsOfOneCallShareAnEntryAndAreAnsweredSeparately(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	before := c.machine.Index()
	var subs []sequencer.Submission
	for i := range 100 {
		subs = append(subs, spec{key: fmt.Sprint("k", i%99), n: 3, header: &dtaskv1.JobHeader{Name: "x"}}.submission())
	}
	other := spec{key: "k5", n: 4, header: &dtaskv1.JobHeader{Name: "y"}}.submission()
	for i, got := range s.SubmitMany(t.Context(), append(subs, other)) {
		var rejected *sequencer.RejectedError
		switch {
		case i == 100:
			if !errors.As(got.Err, &rejected) || rejected.Reason != fsm.KeyConflict {
				t.Errorf("another job with a used key: got %+v", got)
			}
		case got.Err != nil || got.ID != fsm.JobID(i%99+1) || got.Existed != (i == 99):
			t.Errorf("job %d: got %+v", i, got)
		}
	}
	if used := c.machine.Index() - before; used > 2 {
		t.Errorf("%d entries for one call", used)
	}
}
