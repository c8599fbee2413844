package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/worker"
)

// cluster is three coordinators, workers and a client in one synctest bubble.
type cluster struct {
	t        *testing.T
	seed     uint64
	rng      *rand.Rand // of the nemesis, one goroutine
	dir      string
	net      *network
	replicas []*replica
	workers  []*workerHost
	client   *client.Client
	ledger   *ledger
	running  sync.WaitGroup

	life
	calm atomic.Bool // no faults and little work

	terms          atomic.Int64 // started
	lost, diverged atomic.Int64
	fatals         atomic.Int64 // replicas that stopped themselves
	fired          map[string]int
	began          time.Time
}

// replica is one coordinator over all its processes.
type replica struct {
	c       *cluster
	id      string
	address string
	disk    *disk
	leads   atomic.Bool

	cancel context.CancelFunc // nil: not running
	done   chan struct{}
	ended  atomic.Bool // by itself
}

const replicaCount = 3

func newCluster(t *testing.T, seed uint64, l life) *cluster {
	t.Helper()
	base := "/dev/shm" // the stores sync often
	if _, err := os.Stat(base); err != nil {
		base = ""
	}
	dir, err := os.MkdirTemp(base, "dtask-simulation-") //nolint:usetesting // on a file system in memory if there is one
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{t: t, seed: seed, life: l, rng: rand.New(rand.NewPCG(seed, 1)), dir: dir, net: newNetwork(seed), fired: map[string]int{}, began: time.Now()}
	c.ledger = newLedger(c)
	for i := range replicaCount {
		r := &replica{c: c, id: fmt.Sprintf("n%d", i+1), address: fmt.Sprintf("127.0.0.1:%d", 7001+i)}
		r.disk = &disk{rng: rand.New(rand.NewPCG(seed, uint64(10+i)))}
		c.replicas = append(c.replicas, r)
	}
	for _, r := range c.replicas {
		r.start()
	}
	for i := range 4 {
		w := &workerHost{c: c, name: fmt.Sprintf("w%d", i+1), address: fmt.Sprintf("127.0.0.1:%d", 8001+i)}
		c.workers = append(c.workers, w)
		w.start()
	}
	c.client, err = client.New(client.Config{Addrs: c.addresses(), Timeout: l.pace.Scale(time.Hour), Dial: host{net: c.net, address: "127.0.0.1:9001"}.Dial})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) addresses() (list []string) {
	for _, r := range c.replicas {
		list = append(list, r.address)
	}
	return list
}

// restoreQuarantined undoes the quarantine of a data directory: the bit flipped
// in transfer from the disk, as an operator who checks the directory would
// find.
func (r *replica) restoreQuarantined() {
	dir := filepath.Join(r.c.dir, r.id)
	quarantined, err := datadir.Quarantined(dir)
	if len(quarantined) > 0 {
		err = errors.Join(os.RemoveAll(dir), os.Rename(quarantined[0], dir))
	}
	if err != nil {
		r.c.fail("restoring the data directory of %s: %v", r.id, err)
	}
}

// start starts a process of the replica.
func (r *replica) start() {
	r.restoreQuarantined()
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.done = cancel, make(chan struct{})
	done := r.done
	r.ended.Store(false)
	var peers []coordinator.Peer
	for _, p := range r.c.replicas {
		peers = append(peers, coordinator.Peer{ID: p.id, Address: p.address})
	}
	cfg := coordinator.Config{
		ID: r.id, DataDir: filepath.Join(r.c.dir, r.id), Listen: r.address, Peers: peers,
		Logger: slog.New(&logReader{r: r}), Seams: coordinator.Seams{Store: r.disk.wrap}, TimeScale: r.c.pace,
		SnapshotBytes: 16 << 10, TrailingLogs: 64, MinFree: &coordinator.MinFree{}, LogStore: coordinator.LogStore(os.Getenv("DTASK_LOG_STORE")),
	}
	run := func(ctx context.Context, cfg coordinator.Config) error {
		network := host{r.c.net, r.address, new(atomic.Bool)}
		cfg.Seams.Network = network
		err := coordinator.Run(ctx, cfg)
		if !inUse(err) { // it had a network
			network.exit()
		}
		return err
	}
	r.c.running.Go(func() {
		defer close(done)
		err := run(ctx, cfg)
		// A former process that hangs in a disk call still locks the data
		// directory. A kernel would release the lock at its end; the simulation
		// can't.
		for try := 0; try < 100 && inUse(err) && ctx.Err() == nil; try++ {
			<-time.After(r.c.pace.Scale(100 * time.Millisecond))
			err = run(ctx, cfg)
		}
		r.leads.Store(false)
		if ctx.Err() != nil {
			return
		}
		r.ended.Store(true)
		r.c.fatals.Add(1)
		if _, fatal := errors.AsType[*coordinator.FatalError](err); !fatal {
			r.c.fail("replica %s ended with %v", r.id, err)
		}
	})
}

func inUse(err error) bool {
	return err != nil && strings.Contains(err.Error(), "used by another process")
}

// stop ends the process in an orderly way and waits.
func (r *replica) stop() {
	r.cancel()
	<-r.done
}

// kill ends the process: it sends nothing more. Its connections break
// immediately, or hang.
func (r *replica) kill(reset bool) {
	r.isolate(true)
	if reset {
		r.c.net.reset(r.address)
	}
	r.stop()
	r.c.net.reset(r.address)
	r.isolate(false)
}

// isolate partitions the replica from all other hosts.
func (r *replica) isolate(cut bool) {
	for _, a := range r.c.everybody() {
		if a != r.address {
			r.c.net.setCut(r.address, a, cut)
			r.c.net.setCut(a, r.address, cut)
		}
	}
}

func (c *cluster) everybody() []string {
	list := append(c.addresses(), "127.0.0.1:9001")
	for _, w := range c.workers {
		list = append(list, w.address)
	}
	return list
}

// leader returns the replica that believes to lead, or nil.
func (c *cluster) leader() *replica {
	for _, r := range c.replicas {
		if r.leads.Load() {
			return r
		}
	}
	return nil
}

// logReader learns from a replica's log when it leads.
type logReader struct{ r *replica }

func (*logReader) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (h *logReader) Handle(_ context.Context, rec slog.Record) error {
	switch rec.Message {
	case "leading":
		h.r.leads.Store(true)
		h.r.c.terms.Add(1)
	case "no longer leading":
		h.r.leads.Store(false)
	}
	if verbose {
		text := ""
		rec.Attrs(func(a slog.Attr) bool { text += fmt.Sprintf(" %s=%v", a.Key, a.Value); return true })
		fmt.Fprintf(os.Stderr, "%v %s %s %s%s\n", time.Since(h.r.c.began), h.r.id, rec.Level, rec.Message, text)
	}
	return nil
}

func (h *logReader) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *logReader) WithGroup(string) slog.Handler      { return h }

var verbose = os.Getenv("SIMULATION_LOG") != ""

// workerHost is one worker over all its processes.
type workerHost struct {
	c       *cluster
	name    string
	address string
	lives   int
	cancel  context.CancelFunc
	done    chan struct{}
}

func (w *workerHost) start() {
	w.lives++
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel, w.done = cancel, make(chan struct{})
	done, c := w.done, w.c
	x, err := worker.New(worker.Config{
		Join: c.addresses(), Name: w.name, Slots: 3, WorkDir: filepath.Join(c.dir, w.name), DrainTimeout: -1,
		Resources: map[string]int64{"cpu": 8000, "memory": 1 << 40, "disk": 1 << 40},
	}, worker.WithDialer(host{net: c.net, address: w.address}.Dial))
	if err != nil {
		c.fail("%v", err)
		return
	}
	x.Handle("work", c.ledger.execute)
	c.running.Go(func() {
		defer close(done)
		_ = x.Run(ctx) // a partitioned worker gets no acknowledgment
	})
}

// kill ends the process immediately.
func (w *workerHost) kill(reset bool) {
	w.isolate(true)
	if reset {
		w.c.net.reset(w.address)
	}
	w.cancel()
	<-w.done
	w.c.net.reset(w.address)
	w.isolate(false)
}

func (w *workerHost) isolate(cut bool) {
	for _, a := range w.c.addresses() {
		w.c.net.setCut(w.address, a, cut)
		w.c.net.setCut(a, w.address, cut)
	}
}

func (c *cluster) fail(format string, args ...any) {
	c.t.Helper()
	c.t.Errorf("seed %d, %v into the simulation: %s\nreplay (faults and their times): go test ./test/simulation -count=1 -run TestAClusterLosesNothing -cluster.hours=0.01 -cluster.seed=%d -cluster.kind=%s",
		c.seed, time.Since(c.began), fmt.Sprintf(format, args...), c.seed, *clusterKind)
}
