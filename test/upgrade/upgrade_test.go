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

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/cluster/ledger"
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

// rateVariable holds the load in tasks per second, or as a share of the ceiling such as 80%,
// secondsVariable how long the cluster works
// between two steps, in seconds.
const (
	rateVariable    = "DTASK_UPGRADE_RATE"
	secondsVariable = "DTASK_UPGRADE_SECONDS"
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m)) }

// newLevel is the level of the cluster after the upgrade.
const newLevel = uint32(fsm.MaxLevel + 1)

// upgrade is a cluster that is upgraded, and what was done to it.
type upgrade struct {
	*cluster.Cluster

	t         *testing.T
	base, new cluster.Programs
	commands  map[string]bool // of dtaskctl
}

// start starts three coordinators and three workers of the base build.
func start(t *testing.T) *upgrade {
	t.Helper()
	root, err := cluster.Root()
	clustertest.Must(t, err)
	commit, err := baseCommit()
	clustertest.Must(t, err)
	base, err := buildBase(t.Context(), root, commit, t.TempDir())
	clustertest.Must(t, err)
	now, err := cluster.Find()
	clustertest.Must(t, err)
	c := clustertest.New(t, cluster.Config{
		WorkerProgram: cluster.MarkWorker, Slots: slots,
		Env: []string{faults.MaxLevelVariable + "=" + strconv.FormatUint(uint64(newLevel), 10)},
	})
	u := &upgrade{Cluster: c, t: t, base: base, new: now, commands: make(map[string]bool)}
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

// restart restarts a coordinator with a program, as an operator does.
func (u *upgrade) restart(n *cluster.Coordinator, with string) {
	u.t.Helper()
	clustertest.Must(u.t, n.Terminate())
	ctx, cancel := context.WithTimeout(u.t.Context(), guard)
	defer cancel()
	if code, err := n.Wait(ctx); err != nil || code != 0 {
		u.t.Fatalf("%s ended with %d, %v", n.Name, code, err)
	}
	n.SetProgram(with)
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
		if last := len(order) == len(u.Coordinators())-1; (next == status.Leader) != last {
			u.t.Errorf("%s is number %d, and %s leads", next, len(order)+1, status.Leader)
		}
		u.restart(n, u.newProgram())
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
	for _, n := range append(u.Followers(leader), leader) {
		u.restart(n, u.baseProgram())
	}
}

// work lets the cluster work for some time.
func (u *upgrade) work() {
	u.t.Helper()
	seconds, err := strconv.Atoi(cmp.Or(os.Getenv(secondsVariable), "4"))
	clustertest.Must(u.t, err)
	select {
	case <-time.After(time.Duration(seconds) * time.Second):
	case <-u.t.Context().Done():
	}
}

func TestAnUpgradeLosesNothing(t *testing.T) {
	rate := wantedRate(t)
	u := start(t)
	l, err := startLoad(t.Context(), u.Cluster, u.tasksPerSecond(rate))
	clustertest.Must(t, err)

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
		if a := u.ctl(t.Context(), "cluster", "upgrade", "finish"); a.Code != 6 || !strings.Contains(a.Stderr, "upgrade it first") {
			t.Errorf("finishing with an older member: %s", a)
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

	u.judge(l)
	u.checkPage()
}

// upgradeWorker upgrades one worker; the others remain as they are.
func (u *upgrade) upgradeWorker(w *cluster.Worker) {
	u.t.Helper()
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

// judge ends the load and checks what was promised.
func (u *upgrade) judge(l *load) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), judgeTime)
	defer cancel()
	jobs, retries, err := l.stop(ctx)
	clustertest.Must(u.t, err)
	for _, j := range jobs {
		if j.State != "completed" {
			u.t.Errorf("job %s is %s", j.ID, j.State)
		}
	}
	lines, err := ledger.Read(u.ledger())
	clustertest.Must(u.t, err)
	for _, fault := range ledger.Check(lines, jobs, nil) {
		u.t.Error(fault)
	}
	gap, took, ends := longestGap(lines)
	if retries != 0 || ends == 0 {
		u.t.Errorf("%d retries of %d tasks, want 0", retries, ends)
	}
	if gap > longestGapAllowed {
		u.t.Errorf("no task ended for %v", gap)
	}
	clustertest.Must(u.t, u.AwaitEqual(u.t.Context()))
	u.t.Logf("%d jobs, %d tasks, %.0f tasks per second: 0 lost, 0 run twice, %d retries, digests equal, longest gap %v",
		len(jobs), ends, float64(ends)/took.Seconds(), retries, gap)
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
