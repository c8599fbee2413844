package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// endLimit bounds the duration of a job: it is a guard, jobs take a second.
const endLimit = 2 * time.Minute

// feeders is the number of goroutines that submit jobs, each after its previous job
// has ended.
const feeders = 4

// A load is work that continues while disks break.
type load struct {
	c     *cluster.Cluster
	path  string // of the ledger
	group sync.WaitGroup
	stop  context.CancelFunc // no new jobs from then on; nil before begin
	// without is a replica that stays down because its damage could not be repaired.
	without *cluster.Coordinator

	mu       sync.Mutex // guards all below
	acked    []acknowledged
	errs     []error
	refused  int  // submissions that were definitely not stored
	tolerant bool // refusals are expected
}

// acknowledged is a job whose submission was acknowledged.
type acknowledged struct {
	id    string
	after map[string][]string
}

// judgement counts what was found in a load.
type judgement struct{ jobs, tasks, lost, duplicated, diverged int }

func newLoad(c *cluster.Cluster, path string) *load { return &load{c: c, path: path} }

// begin starts submitting jobs.
func (l *load) begin(t *testing.T, seed uint64) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	for i := range feeders {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		l.group.Go(func() { l.feed(ctx, t.Context(), random, i) })
	}
}

// end stops submitting, and waits until all jobs have ended.
func (l *load) end() {
	if l.stop != nil {
		l.stop()
	}
	l.group.Wait()
}

func (l *load) feed(until, ctx context.Context, random *rand.Rand, feeder int) {
	for n := 0; until.Err() == nil; n++ {
		file, after := l.job(random, fmt.Sprintf("job-%d-%d", feeder, n))
		id, err := l.submit(ctx, file, after)
		if errors.Is(err, errRefused) {
			if cluster.Pause(until, 100*time.Millisecond) != nil {
				return
			}
			continue
		}
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

// errRefused is returned for a submission that was definitely not stored.
var errRefused = errors.New("refused")

func (l *load) submit(ctx context.Context, file string, after map[string][]string) (string, error) {
	id, err := l.c.Submit(ctx, file)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if l.tolerant && strings.Contains(err.Error(), "exit 6") {
			l.refused++
			return "", errRefused
		}
		return "", err
	}
	l.acked = append(l.acked, acknowledged{id: id, after: after})
	return id, nil
}

// tolerate sets whether refusals are expected, and returns their number so far.
func (l *load) tolerate(on bool) (refused int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tolerant = on
	return l.refused
}

// job makes a random graph of commands that take 20 to 150 ms.
func (l *load) job(random *rand.Rand, name string) (string, map[string][]string) {
	after := make(map[string][]string)
	var tasks []cluster.TaskFile
	for i := range 3 + random.IntN(4) {
		id := fmt.Sprintf("t%d", i)
		for j := range i {
			if random.IntN(2*i) < 1 {
				after[id] = append(after[id], fmt.Sprintf("t%d", j))
			}
		}
		work := time.Duration(20+random.IntN(130)) * time.Millisecond
		tasks = append(tasks, l.c.Programs.Mark(id, l.path, work).After(after[id]...))
	}
	return cluster.JobFile(name, tasks...), after
}

// begun returns the number of commands that have started.
func (l *load) begun(t *testing.T) int {
	t.Helper()
	lines, err := ledger.Read(l.path)
	clustertest.Must(t, err)
	return len(ledger.Runs(lines))
}

// awaitBegun waits until more commands have started, which shows that work has
// resumed. It returns how long that took.
func (l *load) awaitBegun(t *testing.T, more int) time.Duration {
	t.Helper()
	asked := time.Now()
	want := l.begun(t) + more
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
	return time.Since(asked)
}

// judge ends the load, waits for all acknowledged jobs, and checks them: all of them
// completed, each task once, and all running replicas are equal.
func (l *load) judge(t *testing.T) judgement {
	t.Helper()
	ctx := t.Context()
	l.end()
	for _, err := range l.errs {
		t.Error(err)
	}
	clustertest.Must(t, l.c.AwaitReady(ctx))
	var j judgement
	var jobs []ledger.Job
	for _, a := range l.acked {
		shown, err := l.c.AwaitEnd(ctx, a.id, endLimit)
		if err != nil {
			t.Errorf("job %s was acknowledged: %v", a.id, err)
			j.lost++
			continue
		}
		job := ledger.Job{ID: a.id, State: shown.State, Completed: shown.TasksCompleted}
		for _, task := range shown.Tasks {
			job.Tasks = append(job.Tasks, ledger.Task{ID: task.ID, After: a.after[task.ID], State: task.State, Attempt: task.Attempt, Worker: task.Worker})
		}
		j.jobs++
		j.tasks += len(shown.Tasks)
		jobs = append(jobs, job)
	}
	lines, err := ledger.Read(l.path)
	clustertest.Must(t, err)
	for _, fault := range ledger.Check(lines, jobs, nil) {
		t.Error(fault)
		switch fault.Kind {
		case ledger.Lost:
			j.lost++
		case ledger.Duplicated:
			j.duplicated++
		case ledger.Restarted, ledger.Disorder, ledger.Backwards, ledger.Phantom:
		}
	}
	if slices.ContainsFunc(l.c.Coordinators(), func(n *cluster.Coordinator) bool { return !n.Running() }) {
		if l.without == nil || l.without.Running() {
			t.Error("not all replicas are running at the end: digests cannot be compared")
		}
	} else if err := l.c.AwaitEqual(ctx); err != nil {
		t.Error(err)
		if errors.Is(err, cluster.ErrDifferent) {
			j.diverged++
		}
	}
	t.Logf("%d jobs with %d tasks judged", j.jobs, j.tasks)
	return j
}
