package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/faults"
)

// guard bounds the waits that are not promises. judgeTime bounds the reading of all tasks of
// the load, of which there may be hundreds of thousands.
const (
	guard     = 2 * time.Minute
	judgeTime = 10 * time.Minute
)

// longestGapAllowed is far above the promise of 0.2 s, because other programs may need the
// machine, too.
const longestGapAllowed = 10 * time.Second

// workers is the number of workers, and slots that of each.
const (
	workers = 3
	slots   = 100
)

// Environment variables that select what runs.
const (
	rateVariable    = "DTASK_UPGRADE_RATE"    // tasks per second, or a share of the ceiling such as 80%
	baseVariable    = "DTASK_UPGRADE_BASE"    // the commit of the base build; default: that in the file base or base-tls
	runsVariable    = "DTASK_UPGRADE_RUNS"    // how many times the upgrade runs
	gapVariable     = "DTASK_UPGRADE_GAP"     // the longest time without a completion that passes
	mixedVariable   = "DTASK_UPGRADE_MIXED"   // how long faults are injected into a cluster of both builds
	seedVariable    = "DTASK_UPGRADE_SEED"    // of these faults
	secondsVariable = "DTASK_UPGRADE_SECONDS" // how long the cluster works between two steps
)

// wantedRuns reads the variable of the runs.
func wantedRuns(t *testing.T) int {
	t.Helper()
	text := cmp.Or(os.Getenv(runsVariable), "1")
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("invalid %s %q: must be 1 or more", runsVariable, text)
	}
	return n
}

// wantedDuration reads a variable, which may be missing.
func wantedDuration(t *testing.T, variable string, missing time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return missing
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.Fatalf("invalid %s %q: must be a duration such as 200ms", variable, text)
	}
	return d
}

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m)) }

// newLevel is the level of the cluster after the upgrade.
const newLevel = uint32(fsm.MaxLevel + 1)

// upgrade is a cluster that is upgraded, and what was done to it.
type upgrade struct {
	*cluster.Cluster

	t         *testing.T
	base, new cluster.Programs
	commands  map[string]bool // of dtaskctl
	steps     []step
	asked     int    // tasks per second
	measured  int    // likewise, the ceiling; 0: it was not measured
	machine   string // load of the machine before
}

// secured reports whether the clusters have TLS and identities.
func secured(t *testing.T) bool {
	t.Helper()
	return clustertest.TLS(t, false)
}

// buildBasePrograms builds the base build.
func buildBasePrograms(t *testing.T) cluster.Programs {
	t.Helper()
	root, err := cluster.Root()
	clustertest.Must(t, err)
	commit, err := baseCommit(secured(t))
	clustertest.Must(t, err)
	base, err := buildBase(t.Context(), root, commit, t.TempDir())
	clustertest.Must(t, err)
	return base
}

// start starts three coordinators and three workers of the base build.
func start(t *testing.T, base cluster.Programs) *upgrade {
	t.Helper()
	load := machineLoad()
	now, err := cluster.Find()
	clustertest.Must(t, err)
	c := clustertest.New(t, cluster.Config{
		WorkerProgram: cluster.MarkWorker, Slots: slots, TLS: secured(t),
		Env: []string{faults.MaxLevelVariable + "=" + strconv.FormatUint(uint64(newLevel), 10)},
	})
	u := &upgrade{Cluster: c, t: t, base: base, new: now, commands: make(map[string]bool), machine: load}
	for _, n := range c.Coordinators() {
		n.SetProgram(u.baseProgram())
	}
	for i := range workers {
		c.AddWorker("w"+strconv.Itoa(i+1), "--ledger", u.ledger()).SetProgram(base.Path(cluster.MarkWorker))
	}
	clustertest.Must(t, c.Start(t.Context()))
	return u
}

func (u *upgrade) ledger() string      { return filepath.Join(u.Dir, "ledger") }
func (u *upgrade) baseProgram() string { return u.base.Path("dtaskd") }
func (u *upgrade) newProgram() string  { return u.new.Path(cluster.FaultyCoordinator) }

// ctl runs a command of docs/upgrading.md.
func (u *upgrade) ctl(ctx context.Context, args ...string) cluster.Answer {
	u.commands["dtaskctl "+strings.Join(args, " ")] = true
	return u.Run(ctx, append(slices.Clone(args), "-o", "json")...)
}

// must runs a command that must succeed.
func (u *upgrade) must(args ...string) {
	u.t.Helper()
	clustertest.Must(u.t, u.ctl(u.t.Context(), args...).Err())
}

// status returns the state of the upgrade once all coordinators respond.
func (u *upgrade) status(ctx context.Context) document.Upgrade {
	u.t.Helper()
	var doc document.Upgrade
	clustertest.Must(u.t, cluster.Until(ctx, "all coordinators respond", guard, func(ctx context.Context) error {
		a := u.ctl(ctx, "cluster", "upgrade", "status")
		doc = document.Upgrade{}
		if err := a.Err(); err != nil {
			return err
		}
		if err := a.Into(&doc); err != nil {
			return err
		}
		if doc.Supported == 0 {
			return fmt.Errorf("the members are %+v", doc.Members)
		}
		return nil
	}))
	return doc
}

// firstLevel returns the level of the new cluster: the highest one of the base build.
func (u *upgrade) firstLevel() uint32 {
	u.t.Helper()
	level := uint32(0)
	clustertest.Must(u.t, cluster.Until(u.t.Context(), "the cluster has the level of its founders", guard, func(ctx context.Context) error {
		s := u.status(ctx)
		if level = s.Level; s.State != "complete" {
			return fmt.Errorf("the upgrade is %+v", s)
		}
		return nil
	}))
	return level
}

// want checks the state of the upgrade.
func (u *upgrade) want(level uint32, held bool, state string) {
	u.t.Helper()
	if s := u.status(u.t.Context()); s.Level != level || s.Held != held || s.State != state {
		u.t.Errorf("got level %d, held %v, %s; want %d, %v, %s: %+v", s.Level, s.Held, s.State, level, held, state, s)
	}
}

// build names the build of a program.
func (u *upgrade) build(path string) string {
	if path == u.newProgram() {
		return "new"
	}
	return "base"
}

// restart restarts a coordinator with a program, as an operator does. what it is to the
// cluster is for the table of gaps.
func (u *upgrade) restart(n *cluster.Coordinator, what, with string) {
	u.t.Helper()
	u.begin("%s, %s, stops", n.Name, what)
	clustertest.Must(u.t, n.Terminate())
	ctx, cancel := context.WithTimeout(u.t.Context(), guard)
	defer cancel()
	if code, err := n.Wait(ctx); err != nil || code != 0 {
		u.t.Fatalf("%s ended with %d, %v", n.Name, code, err)
	}
	n.SetProgram(with)
	u.begin("%s starts as %s", n.Name, u.build(with))
	clustertest.Must(u.t, n.Start(u.t.Context()))
	clustertest.Must(u.t, u.AwaitCaughtUp(u.t.Context(), n))
}

// forward upgrades all coordinators in the order that the cluster asks for. between is
// called after the first one.
func (u *upgrade) forward(between func()) {
	u.t.Helper()
	var order []string
	for range u.Coordinators() {
		status, err := u.Status(u.t.Context())
		clustertest.Must(u.t, err)
		next := u.status(u.t.Context()).Next
		n := u.Coordinator(next)
		if n == nil || slices.Contains(order, next) {
			u.t.Fatalf("the next coordinator is %q after %v", next, order)
		}
		what := "follower of the base build"
		if next == status.Leader {
			what = "leader of the base build"
		}
		if last := len(order) == len(u.Coordinators())-1; (next == status.Leader) != last {
			u.t.Errorf("%s is number %d, and %s leads", next, len(order)+1, status.Leader)
		}
		u.restart(n, what, u.newProgram())
		if order = append(order, next); len(order) == 1 {
			between()
		}
	}
	u.t.Logf("upgraded %v", order)
}

// back returns all coordinators to the base build, the leader last.
func (u *upgrade) back() {
	u.t.Helper()
	leader := clustertest.Leader(u.t, u.Cluster)
	for _, n := range u.Followers(leader) {
		u.restart(n, "follower of the new build", u.baseProgram())
	}
	u.restart(leader, "leader of the new build", u.baseProgram())
}

// work lets the cluster work for some time. Meanwhile dtaskctl of the base build submits a
// job.
func (u *upgrade) work() {
	u.t.Helper()
	u.begin("work")
	u.submitAsBase()
	seconds, err := strconv.Atoi(cmp.Or(os.Getenv(secondsVariable), "4"))
	clustertest.Must(u.t, err)
	select {
	case <-time.After(time.Duration(seconds) * time.Second):
	case <-u.t.Context().Done():
	}
}

// submitAsBase runs a job with a client of the base build.
func (u *upgrade) submitAsBase() {
	u.t.Helper()
	old := u.Ctl
	old.Programs = u.base
	id, err := old.Submit(u.t.Context(), cluster.JobFile("old", cluster.Builtin("a", "noop", "")))
	clustertest.Must(u.t, err)
	job, err := old.AwaitEnd(u.t.Context(), id, guard)
	clustertest.Must(u.t, err)
	if job.State != "completed" {
		u.t.Errorf("the job of the base build's dtaskctl is %s", job.State)
	}
}

func TestAnUpgradeLosesNothing(t *testing.T) {
	asked, base, longest := wantedRate(t), buildBasePrograms(t), wantedDuration(t, gapVariable, longestGapAllowed)
	var all []verdict
	for i := range wantedRuns(t) {
		t.Run(fmt.Sprintf("run %d", i+1), func(t *testing.T) {
			u := start(t, base)
			v := u.upgradeUnderLoad(asked)
			all = append(all, v)
			v.accept(t, longest)
			u.checkPage()
		})
	}
	t.Log("\n" + table(rows(all)))
}

// upgradeUnderLoad upgrades the cluster, returns it to the base build while the upgrade is
// held, and upgrades it again, to the end.
func (u *upgrade) upgradeUnderLoad(r rate) verdict {
	u.t.Helper()
	u.asked = u.tasksPerSecond(r)
	cl, err := client.New(u.ClientConfig())
	clustertest.Must(u.t, err)
	defer func() { _ = cl.Close() }() // after the load
	l, err := startLoad(u.t.Context(), cl, u.asked)
	clustertest.Must(u.t, err)

	u.must("cluster", "status")
	old := u.firstLevel()
	u.work()
	u.forward(func() { u.want(old, false, "mixed") })
	u.want(old, false, "ready")
	u.must("cluster", "upgrade", "hold")
	u.want(old, true, "ready")
	u.work()
	u.back()
	u.want(old, true, "complete")
	u.work()
	u.forward(func() {
		if a := u.ctl(u.t.Context(), "cluster", "upgrade", "finish"); a.Code != 6 || !strings.Contains(a.Stderr, "upgrade it first") {
			u.t.Errorf("finishing with an older member: %s", a)
		}
	})
	u.must("cluster", "upgrade", "hold", "--release")
	u.want(old, false, "ready")
	u.work()
	u.must("cluster", "upgrade", "finish")
	u.want(newLevel, false, "complete")
	u.upgradeWorker(u.Workers()[0])
	u.refuseBase()
	u.work()
	return u.judge(l, nil)
}

// upgradeWorker upgrades one worker; the others remain as they are.
func (u *upgrade) upgradeWorker(w *cluster.Worker) {
	u.t.Helper()
	u.begin("%s is upgraded", w.Name)
	u.must("worker", "drain", w.Name, "--wait")
	clustertest.Must(u.t, w.Terminate())
	_, err := w.Wait(u.t.Context())
	clustertest.Must(u.t, err)
	w.SetProgram(u.new.Path(cluster.MarkWorker))
	clustertest.Must(u.t, w.Start(u.t.Context()))
	u.must("worker", "undrain", w.Name)
	clustertest.Must(u.t, u.AwaitWorker(u.t.Context(), w.Name, "up"))
}

// refuseBase starts a follower with the base build after the end of the upgrade: it must
// exit and name the version, and its directory must be usable.
func (u *upgrade) refuseBase() {
	u.t.Helper()
	n := u.Followers(clustertest.Leader(u.t, u.Cluster))[0]
	u.begin("%s starts as base, and is refused", n.Name)
	clustertest.Must(u.t, n.Terminate())
	_, err := n.Wait(u.t.Context())
	clustertest.Must(u.t, err)
	n.SetProgram(u.baseProgram())
	clustertest.Must(u.t, n.Start(u.t.Context()))
	ctx, cancel := context.WithTimeout(u.t.Context(), guard)
	defer cancel()
	code, err := n.Wait(ctx)
	level := fmt.Sprintf("level %d", newLevel)
	if err != nil || code != program.ExitFatal || !n.LogHas("dtaskd:", level, "levels up to") {
		u.t.Errorf("the base build ended with %d, %v, want %d and a message about %s", code, err, program.ExitFatal, level)
	}
	n.SetProgram(u.newProgram())
	clustertest.Must(u.t, n.Start(u.t.Context()))
	clustertest.Must(u.t, u.AwaitCaughtUp(u.t.Context(), n))
}

var pageCommand = regexp.MustCompile(`(?m)^ *(dtaskctl .*)$`)

// checkPage compares the commands that were run with those of docs/upgrading.md.
func (u *upgrade) checkPage() {
	u.t.Helper()
	root, err := cluster.Root()
	clustertest.Must(u.t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", "upgrading.md")) //nolint:gosec // of this repository
	clustertest.Must(u.t, err)
	page := make(map[string]bool)
	for _, m := range pageCommand.FindAllStringSubmatch(string(text), -1) {
		page[m[1]] = true
	}
	got, want := slices.Sorted(maps.Keys(u.commands)), slices.Sorted(maps.Keys(page))
	if !slices.Equal(got, want) {
		u.t.Errorf("the test runs %q, docs/upgrading.md has %q", got, want)
	}
}

// A clone without the base must not pass for an upgrade that works.
func TestAMissingBaseFails(t *testing.T) {
	root, err := cluster.Root()
	clustertest.Must(t, err)
	const unknown = "0123456789abcdef0123456789abcdef01234567"
	_, err = buildBase(t.Context(), root, unknown, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), unknown) || !strings.Contains(err.Error(), "git fetch --unshallow") {
		t.Errorf("got %v, want an error that names the commit and what to do", err)
	}
}
