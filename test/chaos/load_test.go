package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/cluster/ledger"
)

const (
	// feeders is the number of goroutines that submit jobs, each one after its
	// previous job has ended.
	feeders = 8
	// endLimit is how long a job may take. It is a guard: jobs take seconds.
	endLimit = 20 * time.Minute
)

// A load is work that continues while a cluster is broken.
type load struct {
	c     *cluster.Cluster
	path  string // of the ledger
	group sync.WaitGroup
	stop  context.CancelFunc // no new jobs from then on

	mu    sync.Mutex // guards all below
	acked []acknowledged
	kills []time.Duration // on the ledger's clock
	errs  []error
}

// acknowledged is a job that the cluster has acknowledged.
type acknowledged struct {
	id    string
	after map[string][]string
}

// start starts a cluster and its load.
func start(t *testing.T, seed uint64) *load {
	t.Helper()
	c := clustertest.Start(t, cluster.Config{Workers: 3, Slots: 4, TLS: clustertest.TLSOf(t, seed)})
	l := &load{c: c, path: filepath.Join(c.Dir, "ledger")}
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	for i := range feeders {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		l.group.Go(func() { l.feed(ctx, t.Context(), random, i) })
	}
	t.Cleanup(func() {
		stop()
		l.group.Wait()
	})
	return l
}

// feed submits jobs until the load stops, and waits for the end of each.
func (l *load) feed(until, ctx context.Context, random *rand.Rand, feeder int) {
	for n := 0; until.Err() == nil; n++ {
		file, after := l.job(random, fmt.Sprintf("job-%d-%d", feeder, n))
		id, err := l.submit(ctx, file, after)
		if err == nil {
			_, err = l.c.AwaitEnd(ctx, id, endLimit)
		}
		if err != nil {
			l.mu.Lock()
			l.errs = append(l.errs, err)
			l.mu.Unlock()
			return
		}
	}
}

func (l *load) submit(ctx context.Context, file string, after map[string][]string) (string, error) {
	id, err := l.c.Submit(ctx, file)
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked = append(l.acked, acknowledged{id: id, after: after})
	return id, nil
}

// job makes a random graph of commands that take 0.2 to 1 s each.
func (l *load) job(random *rand.Rand, name string) (string, map[string][]string) {
	after := make(map[string][]string)
	var tasks []cluster.TaskFile
	for i := range 5 + random.IntN(8) {
		id := fmt.Sprintf("t%d", i)
		for j := range i {
			if random.IntN(2*i) < 1 {
				after[id] = append(after[id], fmt.Sprintf("t%d", j))
			}
		}
		work := time.Duration(200+random.IntN(800)) * time.Millisecond
		tasks = append(tasks, l.c.Programs.Mark(id, l.path, work).After(after[id]...))
	}
	return cluster.JobFile(name, tasks...), after
}

// kill kills a coordinator and records the time.
func (l *load) kill(t *testing.T, n *cluster.Coordinator) {
	t.Helper()
	at, err := ledger.Now()
	clustertest.Must(t, err)
	clustertest.Must(t, n.Kill())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kills = append(l.kills, at)
}

// awaitBegun returns when n more commands have started: load has resumed.
func (l *load) awaitBegun(t *testing.T, more int) {
	t.Helper()
	lines, err := ledger.Read(l.path)
	clustertest.Must(t, err)
	want := len(ledger.Runs(lines)) + more
	clustertest.Must(t, cluster.Until(t.Context(), fmt.Sprintf("%d more commands start", more), endLimit, func(context.Context) error {
		lines, err := ledger.Read(l.path)
		if err != nil {
			return err
		}
		if n := len(ledger.Runs(lines)); n < want {
			return fmt.Errorf("%d of %d have started", n, want)
		}
		return nil
	}))
}

// judge ends the load, waits for all acknowledged jobs, and checks them. At least minThrough
// commands must have run during a kill.
func (l *load) judge(t *testing.T, minThrough int) {
	t.Helper()
	ctx := t.Context()
	l.stop()
	l.group.Wait()
	for _, err := range l.errs {
		t.Error(err)
	}
	clustertest.Must(t, l.c.AwaitReady(ctx))
	var jobs []ledger.Job
	tasks, attempts := 0, 0
	for _, a := range l.acked {
		shown, err := l.c.AwaitEnd(ctx, a.id, endLimit)
		clustertest.Must(t, err)
		job := ledger.Job{ID: a.id, State: shown.State, Completed: shown.TasksCompleted}
		for _, task := range shown.Tasks {
			job.Tasks = append(job.Tasks, ledger.Task{ID: task.ID, After: a.after[task.ID], State: task.State, Attempt: task.Attempt, Worker: task.Worker})
			tasks++
			attempts += task.Attempt
		}
		jobs = append(jobs, job)
	}
	lines, err := ledger.Read(l.path)
	clustertest.Must(t, err)
	for _, fault := range ledger.Check(lines, jobs, nil) {
		t.Error(fault)
	}
	runs := ledger.Runs(lines)
	through := l.ranThroughKills(runs)
	t.Logf("%d kills, %d jobs with %d tasks; %d commands ran, %d of them through a kill; %d attempts beyond the first of each task",
		len(l.kills), len(jobs), tasks, len(runs), through, attempts-tasks)
	if through < minThrough {
		t.Errorf("got %d commands that ran during a kill, want at least %d", through, minThrough)
	}
	clustertest.Must(t, l.c.AwaitEqual(ctx))
}

// through is ranThroughKills for what has run so far.
func (l *load) through(t *testing.T) int {
	t.Helper()
	lines, err := ledger.Read(l.path)
	clustertest.Must(t, err)
	return l.ranThroughKills(ledger.Runs(lines))
}

// ranThroughKills counts the commands that were running while a coordinator was killed.
func (l *load) ranThroughKills(runs []ledger.Run) int {
	through := 0
	for _, r := range runs {
		for _, at := range l.kills {
			if r.Start < at && at < r.End {
				through++
				break
			}
		}
	}
	return through
}
