package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/chaos/nemesis"
	"github.com/dtask/dtask/test/chaos/proxy"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

const (
	// learningTime is how long after its acknowledgment a job may be known as committed
	// to a single replica only (docs/guarantees.md).
	learningTime = 1500 * time.Millisecond
	// recoveryLimit is how long a cluster may take until all of its replicas are ready,
	// or one has reported why it isn't. It is a guard: replicas wait for each other for
	// 3 s, and are restarted up to 10 s apart.
	recoveryLimit = time.Minute
)

// TestOldCopies (F49) brings back an old copy of a replica's data directory while other
// faults hold: replicas that are killed or stopped before or at the same instant, links
// that are cut, restarts one after another. Either no acknowledged job is lost, or a
// replica has reported the conflict before a client can notice the loss. Each round has
// a cluster of its own.
func TestOldCopies(t *testing.T) {
	if os.Getenv(suiteVariable) != "old-copies" {
		t.Skip("make chaos-old-copies runs this")
	}
	seed, until := seedOf(t), untilOf(t, 1)
	outcomes := make(map[string]int)
	for round := uint64(0); round < 6 || time.Now().Before(until); round++ {
		t.Run(fmt.Sprint("seed-", seed+round), func(t *testing.T) {
			s := newSurvey(t, seed+round)
			s.strike(t, s.oldCopyOfOne)
			outcome, detail := s.await(t)
			outcomes[outcome]++
			t.Logf("%s %s: %s; %d jobs acknowledged", s.plan, outcome, detail, len(s.acked))
			if outcome == silent {
				t.Errorf("an old copy was neither safe nor loud: %s", detail)
			}
		})
	}
	t.Logf("| old copies of a data directory, combined with other faults | %v |", outcomes)
}

// TestTheLossOfEveryDiskIsSeenAsSilent brings back old copies of all data directories at
// once, which no replica can know: the check of TestOldCopies must find the loss.
func TestTheLossOfEveryDiskIsSeenAsSilent(t *testing.T) {
	if os.Getenv(suiteVariable) != "old-copies" {
		t.Skip("make chaos-old-copies runs this")
	}
	s := newSurvey(t, seedOf(t))
	s.strike(t, s.oldCopyOfAll)
	if outcome, detail := s.await(t); outcome != silent {
		t.Errorf("got %s: %s, want %s", outcome, detail, silent)
	}
}

// Outcomes of a round.
const (
	safe   = "safe"   // nothing is lost, and all replicas are ready
	loud   = "loud"   // something is lost or a replica stays out, and that was reported before
	silent = "silent" // anything else
)

// survey is what clients of a cluster see that runs on an old copy.
type survey struct {
	c      *cluster.Cluster
	net    *nemesis.Net
	cl     *client.Client
	random *rand.Rand
	plan   string // what was done, for messages

	struck time.Time // when directories were replaced
	loud   string    // what a replica has reported; "": nothing

	mu    sync.Mutex // guards acked
	acked map[string]acknowledgment
}

// acknowledgment is an acknowledged job.
type acknowledgment struct {
	name string
	at   time.Time
}

// newSurvey starts a cluster without workers, whose jobs stay pending.
func newSurvey(t *testing.T, seed uint64) *survey {
	t.Helper()
	s := &survey{random: rand.New(rand.NewPCG(seed, 49)), acked: make(map[string]acknowledgment)}
	s.c = clustertest.New(t, cluster.Config{TLS: clustertest.TLSOf(t, seed), CoordinatorProgram: cluster.FaultyCoordinator, CoordinatorFlags: []string{"--auto-rejoin"}})
	drawStores(t, s.c, seed)
	var err error
	s.net, err = nemesis.OpenNet(t.Context(), s.c)
	clustertest.Must(t, err)
	t.Cleanup(func() { clustertest.Must(t, s.net.Close()) })
	clustertest.Must(t, s.c.Start(t.Context()))
	s.cl, err = s.c.Client()
	clustertest.Must(t, err)
	t.Cleanup(func() { _ = s.cl.Close() })
	return s
}

// strike submits jobs until do has replaced a directory.
func (s *survey) strike(t *testing.T, do func(ctx context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var submitting sync.WaitGroup
	for i := range 4 {
		submitting.Go(func() { s.submit(ctx, i) })
	}
	err := do(t.Context())
	stop()
	submitting.Wait()
	clustertest.Must(t, err)
}

// submit submits one job after another.
func (s *survey) submit(ctx context.Context, submitter int) {
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("job-%d-%d", submitter, n)
		job, err := spec.Single(spec.SingleTask{Type: "nobody", Name: name})
		if err != nil {
			panic(err) // a mistake of this test
		}
		limited, cancel := context.WithTimeout(ctx, 3*time.Second)
		got, err := s.cl.Submit(limited, job, client.SubmitOptions{Key: name})
		cancel()
		if err == nil {
			s.mu.Lock()
			s.acked[got.ID] = acknowledgment{name, time.Now()}
			s.mu.Unlock()
		}
		_ = cluster.Pause(ctx, 20*time.Millisecond)
	}
}

// upTo pauses for a random time.
func (s *survey) upTo(ctx context.Context, most time.Duration) error {
	return cluster.Pause(ctx, time.Duration(s.random.Int64N(int64(most))))
}

// oldCopyOfOne copies the directory of a replica, makes another one miss what comes
// next, kills the first and perhaps the rest, and starts all of them again.
func (s *survey) oldCopyOfOne(ctx context.Context) error {
	all := s.c.Coordinators()
	s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	victim, other, third := all[0], all[1], all[2]
	if err := errors.Join(s.upTo(ctx, 2*time.Second), s.copyOf(ctx, victim)); err != nil {
		return err
	}
	s.plan = victim.Name + " copied,"
	if err := s.upTo(ctx, 3*time.Second); err != nil {
		return err
	}
	back, err := s.absent(other)
	if err != nil {
		return err
	}
	if err := cluster.Pause(ctx, learningTime+time.Duration(s.random.Int64N(int64(2*time.Second)))); err != nil {
		return err
	}
	s.struck = time.Now()
	returns := []func(context.Context) error{victim.Start}
	if back != nil {
		returns = append(returns, back)
	}
	kills := []*cluster.Coordinator{victim}
	for _, n := range []*cluster.Coordinator{other, third} {
		if (n != other || back == nil) && s.random.IntN(4) > 0 {
			kills, returns = append(kills, n), append(returns, n.Start)
			s.plan += " " + n.Name + " killed at the same instant,"
		}
	}
	if err := killTogether(kills); err != nil {
		return err
	}
	if err := s.restore(victim); err != nil {
		return err
	}
	if s.random.IntN(3) == 0 {
		s.plan += " " + victim.Name + " and " + third.Name + " cut from each other,"
		if err := s.net.Both(victim.Name, third.Name, proxy.Cut()); err != nil {
			return err
		}
		returns = append(returns, func(context.Context) error { return s.net.Heal(s.net.Replicas...) })
	}
	most := []time.Duration{300 * time.Millisecond, time.Second, 5 * time.Second, 10 * time.Second}[s.random.IntN(4)]
	s.plan += fmt.Sprintf(" all back within %v each:", most)
	s.random.Shuffle(len(returns), func(i, j int) { returns[i], returns[j] = returns[j], returns[i] })
	for _, again := range returns {
		if err := errors.Join(s.upTo(ctx, most), again(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// oldCopyOfAll replaces all directories by old copies.
func (s *survey) oldCopyOfAll(ctx context.Context) error {
	all := s.c.Coordinators()
	if err := cluster.Pause(ctx, time.Second); err != nil {
		return err
	}
	if err := killTogether(all); err != nil {
		return err
	}
	for _, n := range all {
		if err := copyTree(ctx, n.DataDir, n.DataDir+".old"); err != nil {
			return err
		}
	}
	for _, n := range all {
		if err := n.Start(ctx); err != nil {
			return err
		}
	}
	if err := cluster.Pause(ctx, 3*learningTime); err != nil {
		return err
	}
	s.struck = time.Now()
	if err := killTogether(all); err != nil {
		return err
	}
	for _, n := range all {
		if err := errors.Join(s.restore(n), n.Start(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// copyOf keeps a copy of the directory of a replica that is killed for it.
func (s *survey) copyOf(ctx context.Context, n *cluster.Coordinator) error {
	if err := n.Kill(); err != nil {
		return err
	}
	if err := copyTree(ctx, n.DataDir, n.DataDir+".old"); err != nil {
		return err
	}
	if err := n.Start(ctx); err != nil {
		return err
	}
	return s.c.AwaitCaughtUp(ctx, n)
}

// restore replaces the directory of a replica by its copy.
func (s *survey) restore(n *cluster.Coordinator) error {
	return errors.Join(os.RemoveAll(n.DataDir), os.Rename(n.DataDir+".old", n.DataDir))
}

// absent makes a replica miss what is acknowledged from now on: it is killed, stopped or
// cut off, or nothing happens. back ends that; nil if nothing happened.
func (s *survey) absent(n *cluster.Coordinator) (back func(context.Context) error, err error) {
	switch s.random.IntN(4) {
	case 0:
		s.plan += " " + n.Name + " killed before,"
		return n.Start, n.Kill()
	case 1:
		s.plan += " " + n.Name + " stopped before,"
		return func(context.Context) error { return n.Resume() }, n.Pause()
	case 2:
		s.plan += " " + n.Name + " cut off before,"
		for _, r := range s.net.Replicas {
			if r != n.Name {
				err = errors.Join(err, s.net.Both(n.Name, r, proxy.Cut()))
			}
		}
		return func(context.Context) error { return s.net.Heal(s.net.Replicas...) }, err
	default:
		return nil, nil
	}
}

// killTogether kills processes at the same instant, as far as one machine can.
func killTogether(some []*cluster.Coordinator) error {
	errs := make([]error, len(some))
	var killing sync.WaitGroup
	for i, n := range some {
		killing.Go(func() { errs[i] = n.Kill() })
	}
	killing.Wait()
	return errors.Join(errs...)
}

func copyTree(ctx context.Context, from, to string) error {
	if out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput(); err != nil { //nolint:gosec // directories of the suite
		return fmt.Errorf("copying %s: %w: %s", from, err, out)
	}
	return nil
}

// await reads all jobs and all alarms repeatedly, and restarts replicas that exit, until
// a loss is seen, or all replicas are ready, or the limit has passed.
func (s *survey) await(t *testing.T) (outcome, detail string) {
	t.Helper()
	missing := ""
	err := cluster.Until(t.Context(), "all replicas are ready, or a job is missing", recoveryLimit, func(ctx context.Context) error {
		s.listen(ctx) // before a replica that has ended is replaced
		for _, n := range s.c.Coordinators() {
			if !n.Running() {
				if err := n.Start(ctx); err != nil {
					return err
				}
			}
		}
		var err error
		if missing, err = s.missing(ctx); missing != "" || err != nil {
			return err
		}
		return s.ready(ctx)
	})
	switch {
	case err == nil && missing == "":
		return safe, "every replica is ready"
	case s.loud == "" && missing != "":
		return silent, missing
	case s.loud == "":
		return silent, err.Error()
	default:
		return loud, fmt.Sprintf("%s; %s; %v", s.loud, missing, err)
	}
}

// ready returns nil when every replica is.
func (s *survey) ready(ctx context.Context) error {
	for _, n := range s.c.Coordinators() {
		if err := n.Get(ctx, "/readyz"); err != nil {
			return err
		}
	}
	return nil
}

// listen collects what the replicas have reported.
func (s *survey) listen(ctx context.Context) {
	for _, n := range s.c.Coordinators() {
		aside, _ := filepath.Glob(n.DataDir + ".damaged-*") // a valid pattern
		_, err := os.Stat(filepath.Join(n.DataDir, datadir.ConflictName))
		switch {
		case len(aside) > 0:
			s.loud = n.Name + " was quarantined"
		case err == nil:
			s.loud = n.Name + " refuses to delete what the others lack"
		}
	}
	limited, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	status, err := s.cl.ClusterStatus(limited)
	if err != nil {
		return
	}
	for _, a := range status.GetAlarms() {
		if kind := a.GetKind(); kind == membership.AlarmHistoryConflict || kind == membership.AlarmUnverifiedDirectory {
			s.loud = "alarm " + kind
		}
	}
}

// missing returns a job that the cluster lacks; "" if none. Jobs that were acknowledged
// just before a directory was replaced don't count.
func (s *survey) missing(ctx context.Context) (string, error) {
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, a := range s.acked {
		if a.at.After(s.struck.Add(-learningTime)) {
			continue
		}
		got, err := s.cl.Job(limited, id, client.ReadOptions{})
		switch {
		case errors.Is(err, client.ErrNotFound):
			return a.name + ", job " + id, nil
		case err != nil:
			return "", err
		case got.GetName() != a.name:
			return fmt.Sprintf("%s, job %s, which is %s now", a.name, id, got.GetName()), nil
		}
	}
	return "", nil
}
