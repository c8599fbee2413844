package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/check"
	"github.com/dtask/dtask/test/chaos/faultfs"
	"github.com/dtask/dtask/test/chaos/history"
	"github.com/dtask/dtask/test/chaos/nemesis"
	"github.com/dtask/dtask/test/chaos/workload"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/record"
)

const (
	// flowLimit is the maximum time until the first completion after everything was
	// healed. It is a guard: it takes seconds.
	flowLimit = 10 * time.Minute
	// endOfAll is how long all jobs may take to end after everything was healed. It
	// is a guard.
	endOfAll = 20 * time.Minute
)

// A run is one cluster with its traffic and its faults.
type run struct {
	o        options
	c        *cluster.Cluster
	net      *nemesis.Net
	world    *nemesis.World
	disks    faultfs.Disks // nil if unused
	recorder *history.Recorder
	work     *workload.Workload
	began    time.Time
	out      *nemesis.Outcome
	line     *record.Run // what the record gets

	stopWork, stopNurse context.CancelFunc
	working, nursing    chan error // one each
}

// startRun starts the cluster and its traffic.
func startRun(t *testing.T, o options) *run {
	t.Helper()
	t.Logf("replay: %s", o.replay(t))
	line := &record.Run{Suite: "chaos", Seed: o.Seed, LogStore: cmp.Or(os.Getenv(cluster.StoreVariable), "mixed")}
	record.AtEnd(t, line)
	r := &run{o: o, line: line, began: time.Now(), working: make(chan error, 1), nursing: make(chan error, 1), out: &nemesis.Outcome{
		Fired: make(map[string]int), Names: make(map[string]int), Cannot: make(map[string]string),
	}}
	dir, err := os.MkdirTemp("", "dtask-chaos-") //nolint:usetesting // kept if the test fails
	clustertest.Must(t, err)
	book := filepath.Join(dir, "ledger")
	directory := ""
	if o.Disks {
		directory = faultfs.DataDirectory
	}
	r.c, err = cluster.New(t.Context(), cluster.Config{
		Dir: dir, DataDirectory: directory, Workers: o.Workers, Slots: o.Slots, TLS: o.TLS, CoordinatorProgram: cluster.FaultyCoordinator,
		WorkerProgram: cluster.MarkWorker, WorkerFlags: []string{"--ledger", book, "--resource", workload.Resource + "=2"}, Labels: labelsOf,
		CoordinatorFlags: []string{"--auto-rejoin", "--snapshot-bytes", "100000", "--keep-jobs", "10000000", "--keep-for", "87600h", "--history-age", "0"}, // two clocks may both be a year ahead, and then expiry is correct
	})
	clustertest.Must(t, err)
	for i, k := range r.c.Workers() {
		k.AddArgs("--gpus", workload.GPUs(i+1))
		if !o.TLS {
			k.AddArgs("--shift", workload.Shifts(i+1))
		}
	}
	drawStores(t, r.c, o.Seed)
	r.net, err = nemesis.OpenNet(t.Context(), r.c, "c1", "c2")
	clustertest.Must(t, err)
	t.Cleanup(func() { r.keep(t) })
	if o.Disks {
		program, err := faultfs.Build(t.Context(), os.Getenv(cluster.BinVariable))
		clustertest.Must(t, err)
		r.disks, err = faultfs.Attach(t.Context(), program, r.c)
		clustertest.Must(t, err)
	}
	r.recorder, err = history.Open(filepath.Join(dir, check.HistoryFile))
	clustertest.Must(t, err)
	r.work, err = workload.New(workload.Config{
		Seed: o.Seed, Clients: o.Clients, Client: r.c.ClientConfig(), Env: r.c.Env, Programs: r.c.Programs, Ledger: book, Recorder: r.recorder, Handovers: o.Handovers,
		Workers: o.Workers, Shifts: !o.TLS,
		Dial: func(ctx context.Context, number int, addr string) (net.Conn, error) {
			return r.net.Dial(ctx, r.net.Groups[number%len(r.net.Groups)], addr)
		},
	})
	clustertest.Must(t, err)
	r.world, err = nemesis.NewWorld(r.c, r.net, o.Seed, book, t.Logf)
	clustertest.Must(t, err)
	r.world.Disks = r.disks
	r.world.KillClient = func(ctx context.Context, after time.Duration) error { return r.work.Killed(ctx, dir, after) }
	clustertest.Must(t, r.c.Start(t.Context()))

	until, stop := context.WithCancel(t.Context())
	r.stopWork = stop
	go func() { r.working <- r.work.Run(t.Context(), until) }()
	nursed, stopNurse := context.WithCancel(t.Context())
	r.stopNurse = stopNurse
	go func() { r.nursing <- r.world.Nurse(nursed) }()
	return r
}

// labelsOf returns the labels of a worker. In a cluster with TLS, the join string grants them,
// so that they can't change: only workers of others have shifts.
func labelsOf(name string) map[string]string {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "w"))
	if err != nil {
		return nil
	}
	return workload.Labels(n)
}

// drawStores gives each coordinator one of the log stores, unless DTASK_LOG_STORE
// names one for all. A cluster may have both.
func drawStores(t *testing.T, c *cluster.Cluster, seed uint64) {
	t.Helper()
	if os.Getenv(cluster.StoreVariable) != "" {
		return
	}
	random := rand.New(rand.NewPCG(seed, 0x6c6f67)) // a separate generator: the plan does not change
	for _, n := range c.Coordinators() {
		store := cluster.Stores()[random.IntN(2)]
		n.AddArgs("--log-store", store)
		t.Logf("the log of %s is in %s", n.Name, store)
	}
}

// keep ends all processes, and keeps everything if the test failed.
func (r *run) keep(t *testing.T) {
	t.Helper()
	var errs []error
	for _, d := range r.disks {
		errs = append(errs, d.Heal()) // otherwise its users could not exit
	}
	errs = append(errs, r.c.Close(), r.net.Close())
	if t.Failed() {
		errs = append(errs, r.disks.Export())
	}
	errs = append(errs, r.disks.Close())
	if r.work != nil {
		errs = append(errs, r.work.Close())
	}
	if r.world != nil {
		errs = append(errs, r.world.Close())
	}
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if !t.Failed() {
		clustertest.Must(t, r.c.Remove())
		return
	}
	t.Logf("kept:    %s", r.c.Dir)
	t.Logf("replay:  %s", r.o.replay(t))
	t.Logf("recheck: go run ./test/chaos/recheck %s", r.c.Dir)
}

// alive returns when a small job has completed, and every replica has the jobs that
// ended while it had lost its data.
func (r *run) alive(ctx context.Context) error {
	probing, cancel := context.WithTimeout(ctx, flowLimit)
	defer cancel()
	if err := r.work.Probe(probing); err != nil {
		return err
	}
	return r.world.AwaitWhole(ctx)
}

// judge ends the traffic, waits for everything in progress, stops everything, and
// runs all checkers.
func (r *run) judge(t *testing.T, trouble error) {
	t.Helper()
	if trouble != nil {
		t.Error(trouble)
	}
	ctx := t.Context()
	lasted := time.Since(r.began)
	r.stopWork()
	if err := <-r.working; err != nil {
		t.Error(err)
	}
	if err := r.settle(ctx); err != nil { // also after an error: jobs still running would look lost
		t.Error(err)
	}
	var finals []check.Final
	if err := cluster.Until(ctx, "all jobs are read", endOfAll, func(ctx context.Context) (err error) {
		finals, err = r.work.Finals(ctx) // the leader may change meanwhile
		return err
	}); err != nil {
		t.Error(err)
	}
	r.work.ExplainEnded(ctx, finals)
	diverged := 0
	if err := r.c.AwaitEqual(ctx); err != nil {
		t.Error(err)
		if errors.Is(err, cluster.ErrDifferent) {
			diverged++
		}
	}
	r.stopNurse()
	if err := <-r.nursing; err != nil {
		t.Error(err)
	}
	clustertest.Must(t, r.c.Close())
	clustertest.Must(t, r.recorder.Close())
	r.save(t, finals)
	report, err := check.Dir(r.c.Dir)
	if err != nil {
		t.Error(err)
		return
	}
	for _, f := range report.Faults {
		t.Error(f)
	}
	diverged += check.Count(report.Faults, check.Diverged, check.Damaged)
	r.table(t, report, lasted, diverged)
	if trouble != nil {
		t.Logf("first error: %v", trouble)
	}
	r.record(report, lasted, diverged)
	r.floors(t, report)
}

// settle returns when everything is up and every job has ended.
func (r *run) settle(ctx context.Context) error {
	if err := r.c.AwaitReady(ctx); err != nil {
		return err
	}
	return cluster.Until(ctx, "all jobs have ended", endOfAll, func(ctx context.Context) error {
		n, err := r.work.Open(ctx)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d have not ended", n)
		}
		return err
	})
}

// save writes the checkers' input, so that they can run again.
func (r *run) save(t *testing.T, finals []check.Final) {
	t.Helper()
	clustertest.Must(t, check.WriteLines(filepath.Join(r.c.Dir, check.PlansFile), r.work.Plans()))
	clustertest.Must(t, check.WriteLines(filepath.Join(r.c.Dir, check.FinalsFile), finals))
	clustertest.Must(t, check.WriteLines(filepath.Join(r.c.Dir, check.HarmsFile), r.world.Harms()))
	clustertest.Must(t, check.WriteLines(filepath.Join(r.c.Dir, "schedule.jsonl"), r.out.Steps))
	about := map[string]any{"options": r.o, "replay": r.o.replay(t), "commit": record.Commit(t.Context())}
	programs := make(map[string]string)
	for _, name := range []string{cluster.FaultyCoordinator, "dtask-worker", "dtaskctl", cluster.MarkWorker} {
		sum, err := check.FileDigest(r.c.Programs.Path(name))
		clustertest.Must(t, err)
		programs[name] = sum
	}
	about["programs"] = programs
	text, err := json.MarshalIndent(about, "", "  ")
	clustertest.Must(t, err)
	clustertest.Must(t, os.WriteFile(filepath.Join(r.c.Dir, "about.json"), text, 0o600))
}

// table prints a summary of the run.
func (r *run) table(t *testing.T, report check.Report, lasted time.Duration, diverged int) {
	t.Helper()
	tally, world := r.work.Tally(), r.world.Tally()
	var b strings.Builder
	row := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "  %-34s %s\n", what, fmt.Sprintf(format, args...))
	}
	row("seed", "%d", r.o.Seed)
	row("connections", "%s", map[bool]string{false: "plaintext", true: "TLS, with tokens and keys"}[r.o.TLS])
	row("time under load", "%s", lasted.Round(time.Second))
	row("jobs, tasks acknowledged", "%d, %d", tally.Jobs, tally.Tasks)
	row("calls; with an unknown outcome", "%d; %d", report.Calls, tally.Unknown)
	row("executions; of attempts above 1", "%d; %d", report.Runs, report.Repeats)
	row("leaders killed (SIGKILL)", "%d", world.LeaderKills)
	row("replicas, workers killed", "%d, %d", world.Kills, world.WorkerKills)
	row("terms led, snapshots, installed", "%d, %d, %d", r.logged("msg=leading "), r.logged(`msg="snapshot taken"`), r.logged("nstalled remote snapshot"))
	row("outcomes of superseded attempts", "%d", r.loggedBy("w", "superseded"))
	row("processes that exited by themselves", "%v", world.Ends)
	row("connections through links, reset", "%d, %d", r.net.Stats().Accepted, r.net.Stats().Resets)
	row("fault kinds fired", "%d: %v", len(r.out.Fired), r.out.Kinds())
	row("faults fired", "%v", r.out.Names)
	for name, why := range r.out.Cannot {
		if r.out.Names[name] == 0 {
			row("never fired", "%s: %s", name, why)
		}
	}
	row("handovers of limits", "%d", report.Handed)
	row("gates and schedules", "%s", report.Gates)
	row("limits of placement, preemption", "%s", report.Scheduled)
	row("explanations, plans; unavailable", "%d, %d; %d", report.Answers.Explained, report.Answers.Planned, report.Answers.Unavailable)
	row("stored logs", "%s", report.Depth)
	row("lost", "%d", check.Count(report.Faults, check.Lost))
	row("duplicated", "%d", check.Count(report.Faults, check.Duplicated))
	row("diverged", "%d", diverged)
	row("other faults", "%d", len(report.Faults)-check.Count(report.Faults, check.Lost, check.Duplicated, check.Diverged, check.Damaged))
	t.Logf("\n%s", b.String())
}

// logged counts the lines of the replicas' logs that match a pattern.
func (r *run) logged(words string) int { return r.loggedBy("n", words) }

func (r *run) loggedBy(prefix, words string) int {
	paths, _ := filepath.Glob(filepath.Join(r.c.Dir, prefix+"*.log")) // a valid pattern
	n := 0
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil {
			n += strings.Count(string(text), words)
		}
	}
	return n
}

// record fills in what the record gets.
func (r *run) record(report check.Report, lasted time.Duration, diverged int) {
	world := r.world.Tally()
	r.line.Seconds, r.line.LeaderKills, r.line.WorkerKills = lasted.Seconds(), world.LeaderKills, world.WorkerKills
	r.line.Tasks, r.line.Handovers, r.line.Faults = int(r.work.Tally().Tasks), report.Handed, r.out.Fired
	r.line.Lost, r.line.Duplicated, r.line.Diverged = check.Count(report.Faults, check.Lost), check.Count(report.Faults, check.Duplicated), diverged
}

// floors fails a run that proved too little.
func (r *run) floors(t *testing.T, report check.Report) {
	t.Helper()
	p := r.proof(r.out)
	p.handovers, p.scheduled = report.Handed, report.Scheduled
	for _, missing := range tooLittle(&r.o, p) {
		t.Errorf("%s: this proves little", missing)
	}
}

// proof is what the run has exercised so far, except for what checkers count at its end.
func (r *run) proof(out *nemesis.Outcome) *proof {
	return &proof{
		calls: r.work.Calls(), unused: r.net.Unused(), kinds: len(out.Fired),
		leaderKills: r.world.Tally().LeaderKills, tasks: r.work.Tally().Tasks,
		handovers: r.o.MinHandovers, scheduled: r.o.MinScheduled,
	}
}
