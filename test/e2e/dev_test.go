package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

func TestTheFirstFiveMinutes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	programs, err := cluster.Find()
	clustertest.Must(t, err)
	listen, err := cluster.FreePort(ctx)
	clustertest.Must(t, err)
	web, err := cluster.FreePort(ctx)
	clustertest.Must(t, err)
	dev := &cluster.Coordinator{
		HTTP:    web,
		Process: cluster.NewProcess("dev", t.TempDir(), programs.Path("dtaskd"), []string{"--dev", "--slots", "2", "--listen", listen, "--http", web}, nil),
	}
	clustertest.Must(t, dev.Start(ctx))
	t.Cleanup(func() { clustertest.Must(t, dev.Kill()) })
	clustertest.Must(t, cluster.Until(ctx, "the process is ready", guard, func(ctx context.Context) error { return dev.Get(ctx, "/readyz") }))
	ctl := cluster.Ctl{Programs: programs, Addrs: []string{listen}}

	said, err := dev.Log()
	clustertest.Must(t, err)
	if !strings.Contains(said, "dtaskctl") || !strings.Contains(said, "submit") {
		t.Errorf("the output lacks the next commands:\n%s", said)
	}
	a := ctl.RunWith(ctx, cluster.JobFile("hello", cluster.TaskFile{"id": "greet", "run": "echo hello"}), "submit", "-", "--wait")
	clustertest.Must(t, a.Err())
	var submitted struct {
		ID string `json:"id"`
	}
	a = ctl.Run(ctx, "submit", "--type", "prime", "--payload", "999999937", "--priority", "high", "-o", "json")
	clustertest.Must(t, a.Err())
	clustertest.Must(t, a.Into(&submitted))
	completed(t, ctl, submitted.ID)
	a = ctl.Run(ctx, "result", submitted.ID)
	clustertest.Must(t, a.Err())
	if !strings.Contains(a.Stdout, "true") {
		t.Errorf("got %s for 999999937, want prime", a)
	}
	id := clustertest.Submit(t, ctl, cluster.JobFile("logs", cluster.TaskFile{"id": "write", "run": "echo to stdout; echo to stderr >&2"}))
	completed(t, ctl, id)
	if a = ctl.Run(ctx, "logs", id+"/write"); a.Code != 0 || !strings.Contains(a.Stdout, "to stdout") {
		t.Errorf("log of the task: got %s", a)
	}
	for _, path := range []string{"/healthz", "/metrics"} {
		clustertest.Must(t, dev.Get(ctx, path))
	}

	clustertest.Must(t, dev.Terminate())
	if code, err := dev.Wait(ctx); err != nil || code != 0 {
		log, _ := dev.Log()
		t.Errorf("after SIGTERM: got exit code %d, %v; want 0\n%s", code, err, log)
	}
	if a = ctl.Run(ctx, "status", id, "--timeout", time.Second.String()); a.Code != 7 {
		t.Errorf("after the end of the process: got %s", a)
	}
}
