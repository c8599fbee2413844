package alerts

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// Under mixed work without faults, with a schedule and scheduled backups, no alert fires, and every
// expression of the dashboard has data.
func TestNoAlertFiresUnderLoad(t *testing.T) {
	t.Parallel()
	needsSuite(t)
	soak := defaultSoak
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		soak, err = time.ParseDuration(text)
		clustertest.Must(t, err)
	}
	b := newBed(t, &fault{config: cluster.Config{TLS: true}}) // with certificates and audit logs
	ctx := t.Context()
	scheduleBackups(t, b)
	setSchedule(t, b)
	submitJobs(t, b, 200*time.Millisecond, mixed)
	began := time.Now()
	clustertest.Must(t, cluster.Until(ctx, "every panel has data", startLimit, func(ctx context.Context) error {
		return b.emptyPanels(ctx, t)
	}))
	clustertest.Must(t, cluster.Pause(ctx, soak-time.Since(began)))
	b.mustHaveFired(t, nil, nil)
	done, err := b.query(ctx, "sum(dtask_tasks_completed_total)")
	clustertest.Must(t, err)
	if len(done) != 1 || done[0].number() < soak.Seconds() {
		t.Errorf("%v tasks completed in %v", done, soak)
	}
	t.Logf("no alert fired in %v, which are %v for the rules, with %v tasks completed", soak, soak*scale, done[0].number())
}

// mixed is a job of short tasks, one command, and a task that fails once.
func mixed(i int) string {
	list := append(tasks(20, "noop", ""), tasks(2, "sleep", "50ms")...)
	for n := range list {
		list[n]["id"] = fmt.Sprint("t", n)
	}
	return cluster.JobFile(fmt.Sprint("mixed-", i), append(list,
		cluster.TaskFile{"id": "command", "run": "echo hello"},
		cluster.Builtin("again", "fail", `{"times": 1}`).With("retry", map[string]any{"max": 3, "initial": "100ms"}))...)
}

// emptyPanels returns an error that names the expressions of the dashboard without data.
func (b *bed) emptyPanels(ctx context.Context, t *testing.T) error {
	t.Helper()
	var empty []string
	for _, p := range panels(t) {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$cluster", "dtask", "$__rate_interval", "10s").Replace(target.Expr)
			list, err := b.query(ctx, expr)
			if err != nil {
				return err
			}
			if len(list) == 0 {
				empty = append(empty, p.Title+": "+expr)
			}
		}
	}
	if len(empty) > 0 {
		return fmt.Errorf("no data for\n%s", strings.Join(empty, "\n"))
	}
	return nil
}
