package cli

import (
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestTheQueueFlagReplacesTheQueueOfEachJob(t *testing.T) {
	t.Parallel()
	job := func(queue string) *dtaskv1.JobSpec {
		return &dtaskv1.JobSpec{Header: &dtaskv1.JobHeader{Queue: queue}}
	}
	a, b := job("etl"), job("")
	setQueue("", a, b)
	if a.GetHeader().GetQueue() != "etl" || b.GetHeader().GetQueue() != "" {
		t.Errorf("without the flag, got the queues %q and %q", a.GetHeader().GetQueue(), b.GetHeader().GetQueue())
	}
	setQueue("ml", a, b)
	if a.GetHeader().GetQueue() != "ml" || b.GetHeader().GetQueue() != "ml" {
		t.Errorf("got the queues %q and %q, want ml", a.GetHeader().GetQueue(), b.GetHeader().GetQueue())
	}
}
