package cli

import (
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A leader may be known and not answer: its death is what the status is read for.
func TestTheStatusOfAClusterIsCompleteWithoutItsQueues(t *testing.T) {
	t.Parallel()
	a, _, _ := setup(t, map[string]string{"DTASK_ADDR": closedPort(t)})
	c, err := a.newClient(a.timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if got := a.queueSummary(t.Context(), c, &dtaskv1.StatusResponse{Leader: "n1"}); got != nil {
		t.Errorf("a leader that does not answer: got %+v", got)
	}
	if t.Context().Err() != nil {
		t.Error("the context of the command ended, too")
	}
}
