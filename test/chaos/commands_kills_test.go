package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// Kinds of kills.
const (
	killBusy    = "supervisor with a command"
	killIdle    = "idle supervisor"
	killStopped = "stopped supervisor"
	killWorker  = "worker"
	killLeader  = "leader"
)

// killKinds are all kinds, in the order in which they are printed.
var killKinds = []string{killBusy, killIdle, killStopped, killWorker, killLeader}

// killDeck are the kills of one worker in a row, in any order. Restarting a worker
// costs more time than all other kills together.
var killDeck = []string{
	killBusy, killBusy, killBusy, killBusy, killBusy, killIdle, killIdle, killIdle,
	killStopped, killStopped, killStopped, killStopped, killWorker,
}

// A commandKiller kills supervisors, workers and leaders until it is stopped. There
// is one goroutine for each worker, because a worker must be alive until it has
// killed what a killed supervisor left; nobody else could.
type commandKiller struct {
	r     *commandsRun
	group *errgroup.Group
	end   context.CancelFunc // no new kills from then on

	mu    sync.Mutex // guards the rest
	kills map[string]int
	log   *os.File
}

// startKiller starts to kill. An error ends all kills, and stop returns it.
func startKiller(t *testing.T, r *commandsRun, seed uint64) *commandKiller {
	t.Helper()
	log, err := os.Create(filepath.Join(r.c.Dir, "kills"))
	clustertest.Must(t, err)
	until, end := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(t.Context())
	k := &commandKiller{r: r, group: group, end: end, kills: make(map[string]int), log: log}
	t.Cleanup(func() {
		_ = k.stop()    // the test has reported it, or failed before
		_ = log.Close() // as in count
	})
	for i, w := range r.c.Workers() {
		random := rand.New(rand.NewPCG(seed, uint64(310+i)))
		group.Go(func() error { return k.harass(until, ctx, w, random) })
	}
	random := rand.New(rand.NewPCG(seed, 320))
	group.Go(func() error { return k.killLeaders(until, ctx, random) })
	return k
}

// stop ends the kills. All workers and coordinators run then.
func (k *commandKiller) stop() error {
	k.end()
	return k.group.Wait()
}

// count counts a kill, and adds it to a file for the search for a failure's cause.
func (k *commandKiller) count(kind string, pid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kills[kind]++
	_, _ = fmt.Fprintln(k.log, time.Now().Format(time.StampMicro), kind, pid) // only for people
}

// enough reports whether there were enough kills of each kind.
func (k *commandKiller) enough() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !slices.ContainsFunc(killKinds, func(kind string) bool { return k.kills[kind] < minKillsOfKind })
}

// String shows the kills so far.
func (k *commandKiller) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var counts []string
	for _, kind := range killKinds {
		counts = append(counts, fmt.Sprintf("%s %d", kind, k.kills[kind]))
	}
	return strings.Join(counts, ", ")
}

// harass kills a worker and its supervisors, in an order of a shuffled deck.
func (k *commandKiller) harass(until, ctx context.Context, w *cluster.Worker, random *rand.Rand) error {
	for {
		deck := slices.Clone(killDeck)
		random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		for _, kind := range deck {
			if until.Err() != nil || ctx.Err() != nil {
				return k.awaitNoOrphans(ctx)
			}
			err := pause(ctx, random, 150*time.Millisecond)
			if err == nil && kind == killWorker {
				err = k.killWorker(ctx, w, random)
			} else if err == nil {
				err = k.killSupervisor(ctx, w, random, kind)
			}
			if err != nil {
				return err
			}
		}
	}
}

// pause waits for a random time.
func pause(ctx context.Context, random *rand.Rand, most time.Duration) error {
	return cluster.Pause(ctx, time.Duration(random.Int64N(int64(most))))
}

// killSupervisor kills a supervisor of a worker; it may find none of that kind.
func (k *commandKiller) killSupervisor(ctx context.Context, w *cluster.Worker, random *rand.Rand, kind string) error {
	pid, err := chooseSupervisor(ctx, w, random, kind)
	if pid == 0 || err != nil {
		return err
	}
	if kind == killStopped {
		if !signalChild(w, pid, syscall.SIGSTOP) {
			return nil
		}
		if err := pause(ctx, random, 300*time.Millisecond); err != nil {
			return err
		}
	} else if kind = killIdle; len(childrenOf(pid)) > 0 {
		kind = killBusy
	}
	if !signalChild(w, pid, syscall.SIGKILL) {
		return nil
	}
	k.count(kind, pid)
	// Until then it has no orphans.
	return k.r.awaitGone(ctx, "a killed supervisor ends", func() []int {
		return slices.DeleteFunc([]int{pid}, func(pid int) bool { return !isSupervisor(pid) || parentOf(pid) != w.Pid() })
	})
}

// chooseSupervisor chooses a supervisor of a worker for a kill, or returns 0. If a
// command is to be hit, it returns at a random moment of its life.
func chooseSupervisor(ctx context.Context, w *cluster.Worker, random *rand.Rand, kind string) (int, error) {
	all := supervisorsOf(w)
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if len(all) == 0 {
		return 0, nil
	}
	idle := slices.IndexFunc(all, func(pid int) bool { return len(childrenOf(pid)) == 0 })
	if kind == killIdle && idle >= 0 {
		return all[idle], nil
	}
	if kind != killBusy {
		return all[0], nil
	}
	return all[0], awaitCommand(ctx, all[0], random)
}

// awaitCommand returns up to 8 ms after a supervisor has started a command, if it
// starts one within 25 ms. Most commands take less, from their start to the next
// order. It watches without a pause, to see the start itself.
func awaitCommand(ctx context.Context, supervisor int, random *rand.Rand) error {
	before, deadline := childrenOf(supervisor), time.Now().Add(25*time.Millisecond)
	for time.Now().Before(deadline) {
		now := childrenOf(supervisor)
		if len(now) > 0 && !slices.Equal(now, before) {
			break
		}
		before = now
	}
	return pause(ctx, random, 8*time.Millisecond)
}

// killWorker kills a worker and restarts it, sometimes twice.
func (k *commandKiller) killWorker(ctx context.Context, w *cluster.Worker, random *rand.Rand) error {
	if err := k.awaitNoOrphans(ctx); err != nil {
		return err
	}
	if all := supervisorsOf(w); len(all) > 0 && random.IntN(2) == 0 {
		if err := awaitCommand(ctx, all[random.IntN(len(all))], random); err != nil {
			return err
		}
	}
	for range 1 + random.IntN(5)/4 {
		pid := w.Pid()
		if err := w.Kill(); err != nil {
			return err
		}
		k.count(killWorker, pid)
		if err := pause(ctx, random, 50*time.Millisecond); err != nil {
			return err
		}
		if err := w.Start(ctx); err != nil {
			return err
		}
		if err := pause(ctx, random, 200*time.Millisecond); err != nil {
			return err
		}
	}
	return k.r.c.AwaitWorker(ctx, w.Name, "up")
}

// awaitNoOrphans waits until the workers have killed what killed supervisors left.
func (k *commandKiller) awaitNoOrphans(ctx context.Context) error {
	return k.r.awaitGone(ctx, "nothing of a killed supervisor remains", k.r.orphans)
}

// killLeaders kills one leader after another, and restarts it.
func (k *commandKiller) killLeaders(until, ctx context.Context, random *rand.Rand) error {
	for until.Err() == nil && ctx.Err() == nil {
		if err := pause(ctx, random, 3*time.Second); err != nil {
			return err
		}
		leader, err := k.r.c.AwaitLeader(ctx)
		if err != nil {
			return err
		}
		if err := leader.Kill(); err != nil {
			return err
		}
		k.count(killLeader, leader.Pid())
		if err := pause(ctx, random, 200*time.Millisecond); err != nil {
			return err
		}
		if err := leader.Start(ctx); err != nil {
			return err
		}
		if err := k.r.c.AwaitCaughtUp(ctx, leader); err != nil {
			return err
		}
	}
	return nil
}
