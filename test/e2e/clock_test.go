package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// setClock sets the wall clock of a coordinator ahead, in milliseconds.
func setClock(ctx context.Context, n *cluster.Coordinator, aheadMS int64) error {
	body := strings.NewReader(fmt.Sprintf(`{"offset_ms": %d}`, aheadMS))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.HTTP+"/test/clock", body)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // the status is complete
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// hasMetric returns nil if the metrics of a coordinator have a line.
func hasMetric(ctx context.Context, n *cluster.Coordinator, line string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.HTTP+"/metrics", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end
	text, err := io.ReadAll(answer.Body)
	if err == nil && !strings.Contains(string(text), "\n"+line+"\n") {
		err = fmt.Errorf("missing line %q", line)
	}
	return err
}

func TestALeaderWhoseClockJumpsAheadForgetsNothing(t *testing.T) {
	t.Parallel()
	for _, store := range cluster.Stores() {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			clockJumpsAhead(t, store)
		})
	}
}

func clockJumpsAhead(t *testing.T, store string) {
	t.Helper()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{
		Workers: 1, CoordinatorProgram: cluster.FaultyCoordinator, CoordinatorFlags: []string{"--log-store", store},
	})
	file := cluster.JobFile("kept", cluster.Builtin("a", "noop", ""))
	id := clustertest.Submit(t, c.Ctl, file, "--idempotency-key", "once")
	completed(t, c.Ctl, id)
	steadily(t, c, func() string {
		leader := clustertest.Leader(t, c) //nolint:contextcheck // the test's own
		const year = 365 * 24 * 60 * 60 * 1000
		for _, step := range []struct {
			aheadMS int64
			agrees  int
		}{{0, 1}, {year, 0}, {0, 1}} {
			clustertest.Must(t, setClock(ctx, leader, step.aheadMS))
			line := fmt.Sprint("dtask_leader_clock_agrees ", step.agrees)
			if err := cluster.Until(ctx, line, guard, func(ctx context.Context) error { return hasMetric(ctx, leader, line) }); err != nil {
				clustertest.Must(t, setClock(ctx, leader, 0))
				return err.Error() // it may not lead any more
			}
			if step.aheadMS == 0 {
				continue
			}
			// After another job, the leader has checked for expired keys more than once.
			completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("later", cluster.Builtin("a", "sleep", "1s")))) //nolint:contextcheck // the test's own
			completed(t, c.Ctl, id)                                                                                          //nolint:contextcheck // the test's own
			if again := clustertest.Submit(t, c.Ctl, file, "--idempotency-key", "once"); again != id {                       //nolint:contextcheck // the test's own
				t.Errorf("the key was forgotten: got job %s for it, want %s", again, id)
			}
		}
		return ""
	})
}
