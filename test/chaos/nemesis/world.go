package nemesis

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/chaos/faultfs"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// Things that faults take besides processes, which are taken by name.
const (
	// Data is the stored data of some replica: only one fault at a time may put any
	// at risk, and keeps it until the replica has caught up again.
	Data = "data"
	// Members is the set of replicas.
	Members = "members"
	// PeerLinks are the links between replicas, WorkerLinks and ClientLinks the links
	// to them.
	PeerLinks, WorkerLinks, ClientLinks = "links of replicas", "links of workers", "links of clients"
	// Clocks are the wall clocks, CPU the machine's time.
	Clocks, CPU = "clocks", "cpu"
)

// Quiet names everything: a fault that takes it runs alone.
func (w *World) Quiet() []string {
	names := []string{Data, Members, PeerLinks, WorkerLinks, ClientLinks, Clocks, CPU}
	for _, n := range w.Cluster.Coordinators() {
		names = append(names, n.Name)
	}
	for _, k := range w.Cluster.Workers() {
		names = append(names, k.Name)
	}
	return names
}

// A World is what faults act on.
type World struct {
	Cluster *cluster.Cluster
	Net     *Net       // nil = no proxies; link faults are unavailable
	Random  *rand.Rand // of the fault being applied
	Ledger  string     // path
	// Disks are those of the replicas, by name; nil if they cannot break.
	Disks faultfs.Disks
	// KillClient starts a client and kills it during a call. Optional.
	KillClient func(ctx context.Context, after time.Duration) error
	// Log writes notes for the reader of the run. It is safe for concurrent use.
	Log func(format string, args ...any)

	status *client.Client
	*shared
}

// shared is the common part of all copies of a World.
type shared struct {
	mu    sync.Mutex        // guards all below
	taken map[string]string // thing → fault
	tally Tally
	harms []ledger.Harm
	// newcomers is how many names were used for replicas that join and leave.
	newcomers int
}

// Tally counts events of a World.
type Tally struct {
	LeaderKills, WorkerKills int            // by SIGKILL
	Kills                    int            // of replicas, all causes
	Ends                     map[string]int // processes that exited by themselves, by name and exit code
}

// NewWorld makes the world of a cluster. The caller closes it.
func NewWorld(c *cluster.Cluster, network *Net, seed uint64, book string, log func(string, ...any)) (*World, error) {
	cfg := c.ClientConfig()
	cfg.Timeout = 3 * time.Second
	status, err := client.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating client: %w", err)
	}
	return &World{
		Cluster: c, Net: network, Random: rand.New(rand.NewPCG(seed, 7)), Ledger: book, Log: log,
		status: status, shared: &shared{taken: make(map[string]string), tally: Tally{Ends: make(map[string]int)}},
	}, nil
}

// with returns the same world with another random source.
func (w *World) with(random *rand.Rand) *World {
	other := *w
	other.Random = random
	return &other
}

// Close closes what the world itself opened.
func (w *World) Close() error { return w.status.Close() } //nolint:wrapcheck // the error is complete

// Take takes things for a fault, all or none, and returns a function that releases
// them.
func (w *World) Take(fault string, things ...string) (release func(), err error) {
	at, err := ledger.Now()
	if err != nil {
		return nil, fmt.Errorf("taking things for %s: %w", fault, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range things {
		if by := w.taken[t]; by != "" {
			return nil, fmt.Errorf("%s for %s, by %s: %w", t, fault, by, ErrBusy)
		}
	}
	for _, t := range things {
		w.taken[t] = fault
	}
	harmed := w.beginHarmLocked(fault, things, at)
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.endHarmLocked(harmed)
		for _, t := range things {
			delete(w.taken, t)
		}
	}), nil
}

// isTaken reports whether a thing is taken.
func (w *World) isTaken(thing string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken[thing] != ""
}

// Tally returns the counts so far.
func (w *World) Tally() Tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tally
	t.Ends = maps.Clone(w.tally.Ends)
	return t
}

// Leader returns the current leader, or ErrCannot.
func (w *World) Leader(ctx context.Context) (*cluster.Coordinator, error) {
	s, err := w.status.ClusterStatus(ctx)
	if err != nil {
		return nil, fmt.Errorf("finding leader: %w: %w", err, ErrCannot)
	}
	n := w.Cluster.Coordinator(s.GetLeader())
	if n == nil || !n.Running() {
		return nil, fmt.Errorf("no leader: %w", ErrCannot)
	}
	return n, nil
}

// Followers returns the coordinators except the leader, in random order.
func (w *World) Followers(ctx context.Context) ([]*cluster.Coordinator, error) {
	leader, err := w.Leader(ctx)
	if err != nil {
		return nil, err
	}
	others := w.Cluster.Followers(leader)
	w.Random.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return others, nil
}

// Worker returns a random worker.
func (w *World) Worker() *cluster.Worker {
	all := w.Cluster.Workers()
	return all[w.Random.IntN(len(all))]
}

// Kill kills a coordinator, which the caller has taken, and counts it as the leader
// if it leads.
func (w *World) Kill(ctx context.Context, n *cluster.Coordinator) error {
	leader, _ := w.Leader(ctx) // there may be no leader
	leads := n == leader && n.Running()
	if err := w.killNow(n); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if leads {
		w.tally.LeaderKills++
	}
	return nil
}

// killNow is Kill without determining the leader.
func (w *World) killNow(n *cluster.Coordinator) error {
	alive := n.Running()
	if err := n.Kill(); err != nil {
		return fmt.Errorf("killing replica: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if alive {
		w.tally.Kills++
	}
	return nil
}

// KillWorker kills a worker, which the caller has taken.
func (w *World) KillWorker(k *cluster.Worker) error {
	alive := k.Running()
	if err := k.Kill(); err != nil {
		return fmt.Errorf("killing worker: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if alive {
		w.tally.WorkerKills++
	}
	return nil
}

// Ensure starts a process that isn't running.
func Ensure(ctx context.Context, p *cluster.Process) error {
	if p.Running() {
		return nil
	}
	return p.Start(ctx) //nolint:wrapcheck // the error is complete
}

// nurseEvery is the interval of the nurse's checks.
const nurseEvery = 100 * time.Millisecond

// Nurse restarts processes that exited by themselves, like a service manager, until
// ctx is done. Processes that a fault has taken are left to it.
func (w *World) Nurse(ctx context.Context) error {
	tick := time.NewTicker(nurseEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var all []*cluster.Process
		for _, n := range w.Cluster.Coordinators() {
			all = append(all, n.Process)
		}
		for _, k := range w.Cluster.Workers() {
			all = append(all, k.Process)
		}
		for _, p := range all {
			if p.Running() || w.isTaken(p.Name) {
				continue
			}
			if err := w.nurse(ctx, p); err != nil && ctx.Err() == nil {
				return fmt.Errorf("restarting an exited process: %w", err)
			}
		}
	}
}

// nurse restarts a process that was seen not to run, unless a fault has taken it, or has restarted
// it meanwhile.
func (w *World) nurse(ctx context.Context, p *cluster.Process) error {
	release, err := w.Take("the nurse", p.Name)
	if errors.Is(err, ErrBusy) {
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	if p.Running() {
		return nil
	}
	w.ended(ctx, p)
	return Ensure(ctx, p)
}

// ended records that a process has exited by itself.
func (w *World) ended(ctx context.Context, p *cluster.Process) {
	code, err := p.Wait(context.WithoutCancel(ctx)) // it has exited
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally.Ends[fmt.Sprintf("%s exit %d", p.Name, code)]++
}

// ready waits until a coordinator follows a leader again.
func (w *World) ready(ctx context.Context, n *cluster.Coordinator) error {
	if err := w.Cluster.AwaitCaughtUp(ctx, n); err != nil {
		return fmt.Errorf("after a fault: %w", err)
	}
	return nil
}

// clock sets the wall clock of a coordinator by its test hook.
func (w *World) clock(ctx context.Context, n *cluster.Coordinator, setting map[string]any) error {
	body, err := json.Marshal(setting)
	if err != nil {
		return fmt.Errorf("setting clock: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.HTTP+"/test/clock", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("setting clock: %w", err)
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("setting clock of %s: %w: %w", n.Name, err, ErrCannot)
	}
	_ = answer.Body.Close() // the status is complete
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("setting clock of %s: %s: %w", n.Name, answer.Status, ErrCannot)
	}
	return nil
}

// snapshot makes a coordinator take a snapshot by its test hook.
func (w *World) snapshot(ctx context.Context, n *cluster.Coordinator) error {
	if err := n.Post(ctx, "/test/snapshot"); err != nil {
		return fmt.Errorf("requesting snapshot: %w: %w", err, ErrCannot)
	}
	return nil
}

// replicas returns the names of some coordinators.
func replicas(some ...*cluster.Coordinator) []string {
	var names []string
	for _, n := range some {
		names = append(names, n.Name)
	}
	return names
}

// pauseOr waits, and returns early without an error when ctx is done.
func pauseOr(ctx context.Context, d time.Duration) {
	_ = cluster.Pause(ctx, d) // the caller checks ctx itself
}

// others returns all coordinators except some.
func (w *World) others(but ...*cluster.Coordinator) []*cluster.Coordinator {
	return slices.DeleteFunc(w.Cluster.Coordinators(), func(n *cluster.Coordinator) bool { return slices.Contains(but, n) })
}
