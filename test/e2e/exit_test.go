package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/chaos/proxy"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// exitCodes checks each exit code of dtaskctl, and that standard output has only
// JSON whatever the code.
func exitCodes(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx := t.Context()
	good := cluster.JobFile("good", cluster.Builtin("only", "echo", "hi"))
	bad := cluster.JobFile("bad", cluster.Builtin("only", "fail", "").With("retry", map[string]any{"max": 0}))
	slow := cluster.JobFile("slow", cluster.Builtin("only", "sleep", "10m"))

	goodID := clustertest.Submit(t, c.Ctl, good, "--wait", "--idempotency-key", "exit-codes")
	badID := clustertest.Submit(t, c.Ctl, bad)
	slowID := clustertest.Submit(t, c.Ctl, slow)
	if _, err := c.AwaitEnd(ctx, badID, guard); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		code  int
		stdin string
		args  []string
	}{
		{0, good, []string{"submit", "-", "--wait"}},
		{0, good, []string{"submit", "-", "--idempotency-key", "exit-codes"}},
		{0, "", []string{"status", badID}}, // of a failed job too
		{0, "", []string{"result", goodID}},
		{0, "", []string{"list"}},
		{0, "", []string{"worker", "list"}},
		{0, "", []string{"cluster", "status"}},
		{0, "", []string{"version"}},
		{1, bad, []string{"submit", "-", "--wait"}},
		{1, "", []string{"result", badID}},
		{2, "", []string{"status", goodID, "--no-such-flag"}},
		{2, "", []string{"no-such-command"}},
		{2, "", []string{"submit"}},
		{3, "", []string{"submit", "-"}},
		{3, "job: {name: x, tasks: [{id: a, type: noop, dependencies: [a]}]}", []string{"submit", "-"}},
		{4, "", []string{"status", "4000000000"}},
		{4, "", []string{"result", "4000000000"}},
		{4, "", []string{"cancel", "4000000000"}},
		{4, "", []string{"logs", goodID + "/no-such-task"}},
		{5, slow, []string{"submit", "-", "--idempotency-key", "exit-codes"}},
		{5, "", []string{"cancel", goodID}},
		{7, "", []string{"status", goodID, "--addr", "127.0.0.1:1", "--timeout", "500ms"}},
		{8, slow, []string{"submit", "-", "--wait", "--timeout", "3s"}},
		{8, "", []string{"wait", slowID, "--timeout", "3s"}}, // or 7 if no coordinator answers in time
		{8, "", []string{"result", slowID}},
	} {
		a := c.RunWith(ctx, test.stdin, append(test.args, "-o", "json")...)
		if a.Code != test.code {
			t.Errorf("want exit code %d, got %s", test.code, a)
		}
		var document any
		if a.Stdout != "" {
			if err := a.Into(&document); err != nil {
				t.Error(err)
			}
		} else if a.Code == 0 {
			t.Errorf("missing document: got %s", a)
		}
		if a.Code != 0 && !strings.Contains(a.Stderr, "dtaskctl") && a.Code != 3 && a.Code != 8 {
			t.Errorf("missing reason: got %s", a)
		}
	}
	refusedCode(t, c)
	interruptedCode(t, c, slowID)
	clustertest.Must(t, c.Run(ctx, "cancel", slowID).Err())
}

// refusedCode requests a result that is larger than an answer may be.
func refusedCode(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	a := c.Run(t.Context(), "submit", "--type", "echo", "--payload", strings.Repeat("x", 4<<10), "--batch", "8400", "-o", "json")
	clustertest.Must(t, a.Err())
	var submitted struct {
		ID string `json:"id"`
	}
	clustertest.Must(t, a.Into(&submitted))
	completed(t, c.Ctl, submitted.ID)
	if a = c.Run(t.Context(), "result", submitted.ID); a.Code != 6 {
		t.Errorf("got %s, want exit code 6", a)
	}
}

func interruptedCode(t *testing.T, c *cluster.Cluster, running string) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	// A process that has not started yet does not handle signals: one that connects does.
	link, err := proxy.Open(ctx, "127.0.0.1:0", clustertest.Leader(t, c).Addr)
	clustertest.Must(t, err)
	defer func() { clustertest.Must(t, link.Close()) }()
	answer := make(chan cluster.Answer, 1)
	go func() { answer <- c.Run(ctx, "wait", running, "--addr", link.Addr()) }()
	clustertest.Must(t, cluster.Until(ctx, "dtaskctl connects", guard, func(context.Context) error {
		if link.Stats().Accepted == 0 {
			return cluster.ErrNotYet
		}
		return nil
	}))
	// It does not report when it waits; the pause is long enough for that.
	clustertest.Must(t, cluster.Pause(ctx, slack))
	interrupt()
	if a := <-answer; a.Code != 130 {
		t.Errorf("got %s, want exit code 130", a)
	}
}
