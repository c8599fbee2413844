package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/chaos/faultfs"
	"github.com/dtask/dtask/test/chaos/nemesis"
	"github.com/dtask/dtask/test/chaos/proxy"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// measured skips tests that take minutes and print figures, and assert only
// clustertest.FailoverLimit.
func measured(t *testing.T) {
	t.Helper()
	if os.Getenv(suiteVariable) != "measure" {
		t.Skip("make chaos-measure runs this")
	}
}

// row prints the spread of some durations, each of which is a failover within its limit.
func row(t *testing.T, what string, times []time.Duration) {
	t.Helper()
	if len(times) == 0 {
		t.Errorf("%s: nothing was measured", what)
		return
	}
	slices.Sort(times)
	at := func(permille int) time.Duration {
		return times[min(len(times)-1, len(times)*permille/1000)].Round(time.Millisecond)
	}
	t.Logf("| %-62s | n %3d | median %7s | p99 %7s | max %7s |", what, len(times), at(500), at(990), at(1000))
	if err := clustertest.WithinFailoverLimit(what, times...); err != nil {
		t.Error(err)
	}
}

// A loss disables the leader; the returned function restores it.
type loss func(ctx context.Context, m *meter, leader *cluster.Coordinator) (back func(context.Context) error, err error)

// A meter is a cluster on which leader losses are measured.
type meter struct {
	c     *cluster.Cluster
	net   *nemesis.Net
	disks faultfs.Disks
	cl    *client.Client
}

// with lists what can be broken in a meter's cluster besides processes.
type with int

const (
	processes with = iota
	links
	distance // links with a round trip of 40 ms
	disks
)

// newMeter starts a cluster with the parts that can be broken.
func newMeter(t *testing.T, what with) *meter {
	t.Helper()
	cfg := cluster.Config{Workers: 2, Slots: 16, WorkerProgram: cluster.MarkWorker, TLS: clustertest.TLS(t, false)}
	if what == disks {
		cfg.DataDirectory = faultfs.DataDirectory
	}
	if what == links || what == distance {
		cfg.CoordinatorProgram = cluster.FaultyCoordinator
	}
	m := &meter{c: clustertest.New(t, cfg)}
	if what == disks {
		m.attach(t)
	}
	if what == links || what == distance {
		var err error
		m.net, err = nemesis.OpenNet(t.Context(), m.c)
		clustertest.Must(t, err)
		t.Cleanup(func() {
			if err := m.net.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	if what == distance {
		clustertest.Must(t, m.net.Spread(20*time.Millisecond))
	}
	clustertest.Must(t, m.c.Start(t.Context()))
	var err error
	m.cl, err = m.c.Client()
	clustertest.Must(t, err)
	t.Cleanup(func() { _ = m.cl.Close() })
	return m
}

// attach gives each replica a disk that can be broken.
func (m *meter) attach(t *testing.T) {
	t.Helper()
	program, err := faultfs.Build(t.Context(), os.Getenv(cluster.BinVariable))
	clustertest.Must(t, err)
	m.disks, err = faultfs.Attach(t.Context(), program, m.c)
	clustertest.Must(t, err)
	t.Cleanup(func() {
		var errs []error
		for _, d := range m.disks {
			errs = append(errs, d.Heal()) // otherwise its users could not exit
		}
		if err := errors.Join(append(errs, m.c.Close(), m.disks.Close())...); err != nil {
			t.Error(err)
		}
	})
}

// flow is a job of many short tasks.
func flow(tasks int) (*dtaskv1.JobSpec, error) {
	job, err := spec.Single(spec.SingleTask{Type: "sleep", Payload: []byte("10ms"), Name: "flow"})
	if err != nil {
		return nil, err
	}
	body := job.GetTasks()[0].GetBody()
	job.Tasks = nil
	for i := range tasks {
		job.Tasks = append(job.Tasks, &dtaskv1.TaskSpec{Id: fmt.Sprintf("t%d", i), Body: body})
	}
	return job, nil
}

// gap keeps tasks completing, disables the leader, and measures how long no
// completion was accepted.
func (m *meter) gap(ctx context.Context, lose loss) (cluster.Gap, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	const tasks = 6000
	job, err := flow(tasks)
	if err != nil {
		return cluster.Gap{}, err
	}
	leader, err := m.c.AwaitLeader(ctx)
	if err != nil {
		return cluster.Gap{}, err
	}
	submitted, err := m.cl.Submit(ctx, job, client.SubmitOptions{})
	if err != nil {
		return cluster.Gap{}, err
	}
	observer := m.c.Observe(ctx, submitted.ID)
	defer observer.Stop()
	if _, err := observer.Await(ctx, tasks/4); err != nil {
		return cluster.Gap{}, err
	}
	lost := time.Now()
	back, err := lose(ctx, m, leader)
	if err != nil {
		return cluster.Gap{}, err
	}
	_, err = observer.Await(ctx, tasks)
	observer.Stop()
	if err := errors.Join(err, back(context.WithoutCancel(ctx))); err != nil {
		return cluster.Gap{}, err
	}
	gap, found := cluster.GapAround(observer.Seen(), lost)
	if !found {
		return gap, errors.New("no completion was seen after the loss")
	}
	return gap, m.c.AwaitCaughtUp(ctx, leader)
}

func killIt(_ context.Context, _ *meter, leader *cluster.Coordinator) (func(context.Context) error, error) {
	return leader.Start, leader.Kill()
}

func stopIt(_ context.Context, _ *meter, leader *cluster.Coordinator) (func(context.Context) error, error) {
	return func(ctx context.Context) error {
		if err := leader.Resume(); err != nil {
			return err
		}
		// A process that was stopped for longer than its disk limit exits when it
		// resumes.
		if cluster.Pause(ctx, time.Second) == nil && !leader.Running() {
			return leader.Start(ctx)
		}
		return nil
	}, leader.Pause()
}

// hangIt blocks every sync of the leader's store until the leader is restored. The
// process aborts after 1.5 s but can't exit before the disk is back, and is restarted
// then.
func hangIt(_ context.Context, m *meter, leader *cluster.Coordinator) (func(context.Context) error, error) {
	hang, err := m.disks[leader.Name].Hang(faultfs.Sync, faultfs.LogFiles)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := hang.Lift(); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, endLimit)
		defer cancel()
		if _, err := leader.Wait(limited); err != nil {
			return err
		}
		return leader.Start(ctx)
	}, nil
}

func cutIt(rules proxy.Rules) loss {
	return func(_ context.Context, m *meter, leader *cluster.Coordinator) (func(context.Context) error, error) {
		heal := func(context.Context) error {
			return errors.Join(m.net.Heal(m.net.Replicas...), m.net.Heal(m.net.Workers...))
		}
		others := slices.DeleteFunc(slices.Concat(m.net.Replicas, m.net.Workers), func(name string) bool { return name == leader.Name })
		return heal, m.net.Split([]string{leader.Name}, others, rules)
	}
}

func onewayIt(out bool) loss {
	return func(_ context.Context, m *meter, leader *cluster.Coordinator) (func(context.Context) error, error) {
		var errs []error
		for _, o := range slices.Concat(m.net.Replicas, m.net.Workers) {
			switch {
			case o == leader.Name:
			case out:
				errs = append(errs, m.net.Oneway(leader.Name, o))
			default:
				errs = append(errs, m.net.Oneway(o, leader.Name))
			}
		}
		heal := func(context.Context) error {
			return errors.Join(m.net.Heal(m.net.Replicas...), m.net.Heal(m.net.Workers...))
		}
		return heal, errors.Join(errs...)
	}
}

// TestMeasureTheLossOfALeader measures how long no completion is accepted after the
// leader is lost in various ways.
func TestMeasureTheLossOfALeader(t *testing.T) {
	measured(t)
	for _, c := range []struct {
		what  string
		times int
		with  with
		lose  loss
	}{
		{"leader killed with SIGKILL", 50, processes, killIt},
		{"leader killed with SIGKILL, round trips of 40 ms", 10, distance, killIt},
		{"leader stopped with SIGSTOP", 15, processes, stopIt},
		{"leader cut off from all others, silently", 15, links, cutIt(proxy.Cut())},
		{"leader cut off from all others, with resets", 15, links, cutIt(proxy.Gone())},
		{"leader receives nothing, and sends", 10, links, onewayIt(false)},
		{"leader sends nothing, and receives", 10, links, onewayIt(true)},
		{"disk of the leader hangs", 15, disks, hangIt},
	} {
		t.Run(strings.ReplaceAll(c.what, " ", "-"), func(t *testing.T) {
			if err := faultfs.Available(); c.with == disks && err != nil {
				t.Skip(err)
			}
			m := newMeter(t, c.with)
			var back []time.Duration
			for i := range c.times {
				gap, err := m.gap(t.Context(), c.lose)
				if err != nil {
					t.Fatalf("loss %d: %v", i+1, err)
				}
				back = append(back, gap.Back)
			}
			row(t, c.what+" → first accepted completion", back)
		})
	}
}

// TestMeasureTheLossOfAWorker measures how long it takes until a task whose worker
// was killed runs on another worker with free slots.
func TestMeasureTheLossOfAWorker(t *testing.T) {
	measured(t)
	c := clustertest.Start(t, cluster.Config{Workers: 6, Slots: 4, TLS: clustertest.TLS(t, false)})
	book := filepath.Join(c.Dir, "ledger")
	var times []time.Duration
	const rounds, together, running = 25, 2, 12 // half of the slots
	for round := range rounds {
		var tasks []cluster.TaskFile
		for i := range running {
			tasks = append(tasks, c.Programs.Mark(fmt.Sprintf("r%d-t%d", round, i), book, 10*time.Minute))
		}
		id, err := c.Submit(t.Context(), cluster.JobFile("long", tasks...))
		clustertest.Must(t, err)
		// Kill fewer than half of the workers at once: the leader would first suspect
		// itself if more failed.
		some := []*cluster.Worker{c.Workers()[round%6], c.Workers()[(round+3)%6]}
		held := awaitHeld(t, book, id, some...)
		at, err := ledger.Now()
		clustertest.Must(t, err)
		for _, k := range some[:together] {
			clustertest.Must(t, k.Kill())
		}
		for _, r := range held {
			times = append(times, awaitAgain(t, book, r)-at)
		}
		clustertest.Must(t, c.Run(t.Context(), "cancel", id).Err())
		for _, k := range some {
			clustertest.Must(t, k.Start(t.Context()))
			clustertest.Must(t, c.AwaitWorker(t.Context(), k.Name, "up"))
		}
	}
	row(t, fmt.Sprintf("%d workers killed → each of their tasks started elsewhere", rounds*together), times)
}

// awaitHeld returns the tasks of a job that run on the given workers, when each of
// them runs some.
func awaitHeld(t *testing.T, book, job string, some ...*cluster.Worker) []ledger.Run {
	t.Helper()
	var held []ledger.Run
	clustertest.Must(t, cluster.Until(t.Context(), "the workers have work", endLimit, func(context.Context) error {
		lines, err := ledger.Read(book)
		if err != nil {
			return err
		}
		held = held[:0]
		busy := make(map[string]bool)
		last := make(map[string]ledger.Run)
		for _, r := range ledger.Runs(lines) {
			last[r.Task] = r
		}
		for _, r := range last {
			for _, k := range some {
				if r.Job == job && r.Worker == k.Name && !r.Ended() {
					held, busy[r.Worker] = append(held, r), true
				}
			}
		}
		if len(busy) < len(some) {
			return fmt.Errorf("only %v are busy", busy)
		}
		return nil
	}))
	return held
}

// awaitAgain returns when a task was started again.
func awaitAgain(t *testing.T, book string, before ledger.Run) time.Duration {
	t.Helper()
	var at time.Duration
	clustertest.Must(t, cluster.Until(t.Context(), before.Task+" runs elsewhere", endLimit, func(context.Context) error {
		lines, err := ledger.Read(book)
		if err != nil {
			return err
		}
		for _, r := range ledger.Runs(lines) {
			if r.Task == before.Task && r.Attempt > before.Attempt {
				at = r.Start
				return nil
			}
		}
		return errors.New("no later attempt")
	}))
	return at
}
