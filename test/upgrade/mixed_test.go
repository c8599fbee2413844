package upgrade

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/chaos/nemesis"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// The plan of the faults.
const (
	mixedPhase    = 30 * time.Second // with faults, before everything is healed
	mixedPace     = 5 * time.Second
	mixedHold     = 6 * time.Second // the longest fault
	mixedResume   = time.Minute     // a guard: until work has resumed
	maxMixedPhase = 10_000
	// maxMixedTasks bounds the load: its ledger is read into memory, about 500 bytes a task.
	maxMixedTasks = 2_000_000
)

// mixedFaults are the kinds of faults that need neither proxies nor the switches of
// package faults, which the base build doesn't have: signals to processes, restarts, and
// transfers of leadership.
func mixedFaults() []nemesis.Fault {
	kinds := []string{"F1", "F2", "F3", "F4", "F5", "F8", "F9", "F10", "F11", "F12", "F13", "F15", "F56", "F61"}
	return slices.DeleteFunc(nemesis.All(), func(f nemesis.Fault) bool { return !slices.Contains(kinds, f.Kind()) })
}

// A cluster may stay mixed for as long as its operator likes, and survives there what it
// survives otherwise. One coordinator and one worker have the new build, the others the
// base build. Tasks of workers that faults harmed may run again.
func TestAMixedClusterWithstandsFaults(t *testing.T) {
	lasts := wantedDuration(t, mixedVariable, 0)
	if lasts == 0 {
		t.Skip("make upgrade MIXED=10m runs this")
	}
	u := start(t, buildBasePrograms(t))
	old := u.firstLevel()
	u.restart(u.Followers(clustertest.Leader(t, u.Cluster))[0], "follower of the base build", u.newProgram())
	u.upgradeWorker(u.Workers()[0])
	u.asked = u.tasksPerSecond(wantedRate(t))
	if tasks := u.asked * int(lasts.Seconds()); tasks > maxMixedTasks {
		t.Fatalf("%d tasks per second for %v are %d, and can be %d: lower RATE or MIXED", u.asked, lasts, tasks, maxMixedTasks)
	}

	world, err := nemesis.NewWorld(u.Cluster, nil, mixedSeed(t), u.ledger(), t.Logf)
	clustertest.Must(t, err)
	defer func() { _ = world.Close() }() // only read
	cl, err := client.New(u.ClientConfig())
	clustertest.Must(t, err)
	defer func() { _ = cl.Close() }() // after the load
	l, err := startLoad(t.Context(), cl, u.asked)
	clustertest.Must(t, err)
	u.begin("faults")
	out := u.injectFaults(world, mixedSeed(t), lasts)
	u.begin("no faults")
	u.work()
	u.want(old, false, "mixed")
	v := u.judge(l, world.Harms())
	tally := world.Tally()
	t.Logf("%d kinds of faults in %d phases; %d replicas and %d workers were killed, %d of them while leading\n%s",
		len(out.Fired), out.Phases, tally.Kills, tally.WorkerKills, tally.LeaderKills, table(rows([]verdict{v})))
	if v.lost+v.twice != 0 || !v.equal {
		t.Errorf("%d lost, %d run twice, digests equal: %t; want 0, 0, true", v.lost, v.twice, v.equal)
	}
	if len(tally.Ends) > 0 {
		t.Errorf("processes exited by themselves: %v", tally.Ends)
		u.logEnds()
	}
}

// endLine matches what a coordinator or a worker logs when it gives up.
var endLine = regexp.MustCompile(`(?m)^(dtaskd: |dtask-worker: |.*(stopping replica|level=ERROR|panic:)).*$`)

// logEnds prints why processes exited by themselves: their directories are gone after the
// test.
func (u *upgrade) logEnds() {
	u.t.Helper()
	var all []*cluster.Process
	for _, n := range u.Coordinators() {
		all = append(all, n.Process)
	}
	for _, w := range u.Workers() {
		all = append(all, w.Process)
	}
	for _, p := range all {
		text, err := p.Log()
		clustertest.Must(u.t, err)
		for _, line := range endLine.FindAllString(text, maxEndLines) {
			u.t.Logf("%s: %s", p.Name, line)
		}
	}
}

// maxEndLines bounds the printed lines of a process.
const maxEndLines = 20

// mixedSeed reads the variable of the seed.
func mixedSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv(seedVariable)
	if text == "" {
		return 1
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("invalid %s %q: must be a number", seedVariable, text)
	}
	return seed
}

// injectFaults injects faults for some time. After each phase a job must complete.
func (u *upgrade) injectFaults(world *nemesis.World, seed uint64, lasts time.Duration) *nemesis.Outcome {
	u.t.Helper()
	ctx, stop := context.WithCancel(u.t.Context())
	nursed := make(chan error, 1)
	go func() { nursed <- world.Nurse(ctx) }()
	began := time.Now()
	out, err := nemesis.Run(u.t.Context(), world, nemesis.Options{
		Seed: seed, Faults: mixedFaults(), Phases: maxMixedPhase, Safety: min(mixedPhase, lasts), Pace: mixedPace, Most: mixedHold,
		Alive:  u.alive,
		Enough: func(*nemesis.Outcome) bool { return time.Since(began) >= lasts },
	})
	stop()
	clustertest.Must(u.t, <-nursed)
	clustertest.Must(u.t, err)
	return out
}

// alive returns when a job of either build's dtaskctl has completed.
func (u *upgrade) alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, mixedResume)
	defer cancel()
	for _, programs := range []cluster.Programs{u.base, u.new} {
		ctl := u.Ctl
		ctl.Programs = programs
		id, err := ctl.Submit(ctx, cluster.JobFile("alive", cluster.Builtin("a", "noop", "")))
		if err != nil {
			return err
		}
		job, err := ctl.AwaitEnd(ctx, id, mixedResume)
		if err == nil && job.State != "completed" {
			err = fmt.Errorf("job %s is %s", id, job.State)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
