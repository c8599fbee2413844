package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

const (
	// commandsVariable is how many commands TestNoKillBreaksACommand runs at least.
	commandsVariable = "DTASK_CHAOS_COMMANDS"
	defaultCommands  = 10_000
	// commandsOfJob is the size of one job. Between two jobs all supervisors are idle.
	commandsOfJob = 2500
	// minKillsOfKind is how many kills of each kind a run needs to prove something.
	minKillsOfKind = 24
	// commandsLimit is how long one job may take, and goneLimit how long processes
	// may take to end. Both are guards against hanging: a job takes a quarter of a
	// minute, processes milliseconds.
	commandsLimit = 5 * time.Minute
	goneLimit     = 30 * time.Second
)

// TestNoKillBreaksACommand runs short commands that leave behind whatever a command
// can leave, while supervisors, workers and leaders are killed at random moments of
// a command's life. Each command records its begin, and complains about what it
// finds of others.
func TestNoKillBreaksACommand(t *testing.T) {
	if os.Getenv(suiteVariable) != "commands" {
		t.Skip("make chaos-commands runs this")
	}
	seed, until := seedOf(t), untilOf(t, 1)
	least := number(t, commandsVariable, defaultCommands)
	c := clustertest.Start(t, cluster.Config{Workers: 2, Slots: 4, TLS: clustertest.TLSOf(t, seed)})
	r := &commandsRun{
		c: c, mark: fmt.Sprintf("%d-%d", seed, time.Now().UnixNano()),
		record: filepath.Join(c.Dir, "commands"), complaints: filepath.Join(c.Dir, "complaints"),
	}
	k := startKiller(t, r, seed)
	random := rand.New(rand.NewPCG(seed, 300))
	ran, began := 0, time.Now()
	for ran < least || !k.enough() || time.Now().Before(until) {
		// With a limit, supervisors are often idle; without one, workers have
		// further commands at hand.
		parallel := []int{0, 3 + random.IntN(6)}[random.IntN(2)]
		r.runJob(t, parallel)
		ran += commandsOfJob
		t.Logf("%d commands after %v: %v", ran, time.Since(began).Round(time.Second), k)
		if t.Failed() {
			break
		}
	}
	clustertest.Must(t, k.stop())
	r.judgeRecord(t)
	r.stopWorkers(t)
}

// A commandsRun is what one run of the test shares.
type commandsRun struct {
	c                  *cluster.Cluster
	mark               string // in the environment of all its commands
	record, complaints string // files
	jobs               []cluster.Job
}

// runJob runs a job with the given number of concurrent commands (0 = no limit) to
// its end, after which no process of it may remain.
func (r *commandsRun) runJob(t *testing.T, parallel int) {
	t.Helper()
	ctx := t.Context()
	id := clustertest.Submit(t, r.c.Ctl, r.jobFile(parallel))
	job, err := r.c.AwaitEnd(ctx, id, commandsLimit)
	clustertest.Must(t, err)
	r.jobs = append(r.jobs, job)
	clustertest.Must(t, r.awaitGone(ctx, "no process of an ended job remains", r.processes))
	if job.State != "completed" || job.TasksTotal != commandsOfJob || job.TasksCompleted != commandsOfJob || len(job.Tasks) != commandsOfJob {
		t.Errorf("job %s is %s: %d tasks, %d completed, %d listed; want %d", id, job.State, job.TasksTotal, job.TasksCompleted, len(job.Tasks), commandsOfJob)
	}
}

// stopWorkers ends one worker in an orderly way and kills the other one. None of
// the supervisors of any worker may outlive them.
func (r *commandsRun) stopWorkers(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	orderly, killed := r.c.Workers()[0], r.c.Workers()[1]
	clustertest.Must(t, killed.Kill())
	clustertest.Must(t, orderly.Terminate())
	code, err := orderly.Wait(ctx)
	clustertest.Must(t, err)
	if code != 0 {
		t.Errorf("%s ended with exit code %d", orderly.Name, code)
	}
	clustertest.Must(t, r.awaitGone(ctx, "no supervisor outlives its worker", r.supervisors))
}
