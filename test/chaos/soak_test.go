package chaos

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/record"
)

// A mix is one kind of job in a soak: a number of users, each of whom submits one job
// per period and waits for its end.
type mix struct {
	name   string
	users  int
	period time.Duration
	tasks  int
	file   func(c *cluster.Cluster, book string) string
	cancel bool // cancelled a little later
	ends   dtaskv1.JobState
}

// mixes keep two workers about half busy.
func mixes() []mix {
	chained := func(*cluster.Cluster, string) string {
		var tasks []cluster.TaskFile
		for i := range 10 {
			t := cluster.Builtin(fmt.Sprintf("t%d", i), "sleep", "2ms")
			if i%5 > 0 {
				t = t.After(fmt.Sprintf("t%d", i-1))
			}
			tasks = append(tasks, t)
		}
		return cluster.JobFile("chained", tasks...)
	}
	array := func(*cluster.Cluster, string) string {
		return cluster.JobFile("array", cluster.Builtin("map", "noop", "").With("array", map[string]any{"items": make([]int, 100)}))
	}
	failing := func(times string, retries int) func(*cluster.Cluster, string) string {
		return func(*cluster.Cluster, string) string {
			return cluster.JobFile("failing", cluster.Builtin("a", "fail", times).With("retry", map[string]any{"max": retries, "initial": "20ms"}))
		}
	}
	return []mix{
		{"chained", 4, time.Second, 10, chained, false, dtaskv1.JobState_JOB_STATE_COMPLETED},
		{"array", 1, time.Second, 100, array, false, dtaskv1.JobState_JOB_STATE_COMPLETED},
		{"retried", 2, time.Second, 1, failing(`{"times": 2}`, 3), false, dtaskv1.JobState_JOB_STATE_COMPLETED},
		{"dead", 1, 2 * time.Second, 1, failing("", 1), false, dtaskv1.JobState_JOB_STATE_FAILED},
		{"command", 1, time.Second, 1, func(c *cluster.Cluster, book string) string {
			return cluster.JobFile("command", c.Programs.Mark("a", book, 20*time.Millisecond))
		}, false, dtaskv1.JobState_JOB_STATE_COMPLETED},
		{"cancelled", 2, time.Second, 1, func(*cluster.Cluster, string) string {
			return cluster.JobFile("cancelled", cluster.Builtin("a", "sleep", "10m"))
		}, true, dtaskv1.JobState_JOB_STATE_CANCELLED},
	}
}

// TestSoak runs work of all kinds for the requested time with nothing broken: after the
// warm-up, nothing grows.
func TestSoak(t *testing.T) {
	if os.Getenv(suiteVariable) != "soak" {
		t.Skip("make soak runs this")
	}
	if runtime.GOOS != "linux" {
		t.Skip("requires /proc (Linux)")
	}
	lasts := time.Duration(number(t, minutesVariable, 30.0) * float64(time.Minute))
	line := &record.Run{Suite: "soak", LogStore: cmp.Or(os.Getenv(cluster.StoreVariable), "bolt")}
	record.AtEnd(t, line)
	// The log's file grows until a snapshot lets it shrink. Several snapshots must fit into
	// each third of the time that is compared, whatever else the machine does.
	c := clustertest.Start(t, cluster.Config{Workers: 2, Slots: 16, TLS: clustertest.TLS(t, true), CoordinatorFlags: []string{
		"--snapshot-bytes", "1048576", "--keep-for", "30s", "--keep-jobs", "1000", "--history-age", "30s",
	}})
	began, jobs, tasks := time.Now(), atomic.Int64{}, atomic.Int64{}
	until, stop := context.WithCancel(t.Context())
	var users sync.WaitGroup
	for _, m := range mixes() {
		for range m.users {
			users.Go(func() {
				n, err := m.use(t.Context(), until, c)
				jobs.Add(n)
				tasks.Add(n * int64(m.tasks))
				if err != nil {
					t.Errorf("%s: %v", m.name, err)
				}
			})
		}
	}
	g := newGauges()
	for time.Since(began) < lasts && !t.Failed() {
		clustertest.Must(t, cluster.Pause(t.Context(), 2*time.Second))
		clustertest.Must(t, g.sample(t.Context(), c, time.Since(began)))
	}
	stop()
	users.Wait()
	clustertest.Must(t, c.AwaitEqual(t.Context()))
	for _, n := range c.Coordinators() {
		if !n.Running() {
			t.Errorf("%s has exited", n.Name)
		}
	}
	text, grown := g.judge(warmUp(lasts))
	t.Logf("%d jobs with %d tasks in %s\n%s", jobs.Load(), tasks.Load(), time.Since(began).Round(time.Second), text)
	if len(grown) > 0 {
		t.Errorf("grown quantities:\n%s", strings.Join(grown, "\n"))
	}
	line.Seconds, line.Tasks = time.Since(began).Seconds(), int(tasks.Load())
}

// warmUp is the part of a soak after which everything that is kept for a limited time
// has reached its size, such as generated keys, which are kept for ten minutes, in a
// soak of half an hour.
func warmUp(lasts time.Duration) time.Duration {
	return min(max(2*time.Minute, lasts*4/10), lasts*7/10)
}

// use is one user of a mix: it submits one job after another, waits for the end of
// each, and returns their number.
func (m *mix) use(ctx, until context.Context, c *cluster.Cluster) (jobs int64, err error) {
	cl, err := c.Client()
	if err != nil {
		return 0, err
	}
	defer func() { _ = cl.Close() }()
	job, err := spec.Parse("soak", []byte(m.file(c, filepath.Join(c.Dir, "ledger"))), spec.Options{})
	if err != nil {
		return 0, err
	}
	tick := time.NewTicker(m.period)
	defer tick.Stop()
	for until.Err() == nil {
		if err := m.once(ctx, cl, job); err != nil {
			return jobs, err
		}
		jobs++
		select {
		case <-tick.C:
		case <-until.Done():
		}
	}
	return jobs, nil
}

func (m *mix) once(ctx context.Context, cl *client.Client, job *dtaskv1.JobSpec) error {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	submitted, err := cl.Submit(ctx, job, client.SubmitOptions{})
	if err != nil {
		return err
	}
	if m.cancel {
		if err := cluster.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		if _, err := cl.Cancel(ctx, submitted.ID, "", "enough"); err != nil {
			return err
		}
	}
	ended, err := cl.Wait(ctx, submitted.ID)
	if err == nil && ended.GetState() != m.ends {
		err = fmt.Errorf("job %s is %v, want %v", submitted.ID, ended.GetState(), m.ends)
	}
	return err
}
