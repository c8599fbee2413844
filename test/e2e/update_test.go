package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// Payload and priority of waiting tasks are changed although the leader is killed;
// those of running tasks are not.
func TestUnstartedTasksAreUpdatedAlthoughTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Coordinators: 3, Workers: 1, Slots: 1})
	open := filepath.Join(c.Dir, "open")
	gate := fmt.Sprintf("%s -ledger %s && until [ -e %s ]; do sleep 0.1; done", c.Programs.Path("mark"), ledgerOf(c), open)
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("changed",
		cluster.TaskFile{"id": "gate", "run": gate},
		cluster.Builtin("text", "echo", "old").After("gate"),
		c.Programs.Mark("first", ledgerOf(c), 0).After("gate"),
		c.Programs.Mark("second", ledgerOf(c), 0).After("gate")))
	awaitBegun(t, c, id, 1)

	payload := []string{"update", id + "/text", "--payload", "new", "--idempotency-key", "payload", "-o", "json"}
	if got := updateOf(t, c, payload...); got.Version != 2 || got.Existed {
		t.Errorf("update of the payload: got %+v", got)
	}
	clustertest.Must(t, clustertest.Leader(t, c).Kill())
	if got := updateOf(t, c, "update", id+"/second", "--priority", "urgent", "--if-version", "2", "-o", "json"); got.Version != 3 {
		t.Errorf("update of the priority under the next leader: got %+v", got)
	}
	if got := updateOf(t, c, payload...); got.Version != 2 || !got.Existed {
		t.Errorf("the same update again: got %+v, want it reported as repeated", got)
	}
	for _, args := range [][]string{
		{id + "/gate", "--priority", "low"},                              // runs
		{id, "--priority", "low", "--if-version", "2"},                   // is at 3
		{id + "/text", "--payload", "x", "--idempotency-key", "payload"}, // another change
	} {
		if a := c.Run(ctx, append([]string{"update"}, args...)...); a.Code != 5 {
			t.Errorf("got %s, want exit code 5", a)
		}
	}
	clustertest.Must(t, os.WriteFile(open, nil, 0o600))
	completed(t, c.Ctl, id)
	if got := updateOf(t, c, payload...); got.Version != 2 || !got.Existed {
		t.Errorf("the same update after the end: got %+v, want it reported as repeated", got)
	}
	var doc struct {
		Results map[string]struct{ Result string }
	}
	clustertest.Must(t, c.Run(ctx, "result", id, "-o", "json").Into(&doc))
	if got := doc.Results["text"].Result; got != "new" {
		t.Errorf("got payload %q, want new", got)
	}
	first, second := runsOf(t, c, id, "first"), runsOf(t, c, id, "second")
	if len(first) != 1 || len(second) != 1 || second[0].Start > first[0].Start {
		t.Errorf("got runs %+v of first and %+v of second, want second before first", first, second)
	}
}

type updateDoc struct {
	Version int
	Existed bool
}

// updateOf runs an update that takes effect.
func updateOf(t *testing.T, c *cluster.Cluster, args ...string) updateDoc {
	t.Helper()
	a := c.Run(t.Context(), args...)
	clustertest.Must(t, a.Err())
	var doc updateDoc
	clustertest.Must(t, a.Into(&doc))
	return doc
}

func TestSubmissionsAboveTheRateLimitAreRejected(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Coordinators: 1, CoordinatorFlags: []string{"--submit-rate", "0.02"}})
	submit := func(key string, args ...string) cluster.Answer {
		return c.Run(ctx, append([]string{"submit", "--type", "noop", "--idempotency-key", key}, args...)...)
	}
	clustertest.Must(t, submit("a").Err()) // the allowance of a minute
	a := submit("b", "--timeout", "2s")
	if a.Code != 6 || !strings.Contains(a.Stderr, "exceeds 0.02 jobs per second") {
		t.Errorf("got %s, want exit code 6 and the reason", a)
	}
	clustertest.Must(t, submit("a", "--timeout", "5s").Err())
}
