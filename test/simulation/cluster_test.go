package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
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
	secrets  *secrets // nil: no TLS
	running  sync.WaitGroup

	life
	calm       atomic.Bool // no faults and little work
	hasOldCopy bool        // a replica runs on an old copy of its data directory

	terms          atomic.Int64 // started
	sessions       atomic.Int64 // of workers, opened
	lost, diverged atomic.Int64
	fatals         atomic.Int64 // replicas that stopped themselves
	fired          map[string]int
	began          time.Time
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
	c.net.distance = l.distance
	c.ledger = newLedger(c)
	if l.secure {
		c.secrets = newSecrets(c)
	}
	for i := range replicaCount {
		r := &replica{c: c, id: fmt.Sprintf("n%d", i+1), address: fmt.Sprintf("127.0.0.1:%d", 7001+i)}
		r.certificate = c.secrets.issue(r.id)
		r.disk = &disk{rng: rand.New(rand.NewPCG(seed, uint64(10+i)))}
		c.replicas = append(c.replicas, r)
	}
	for _, r := range c.replicas {
		r.start()
	}
	c.client, err = client.New(c.secrets.client(client.Config{Addrs: c.addresses(), Timeout: l.pace.Scale(time.Hour), Dial: c.caller().Dial}))
	if err != nil {
		t.Fatal(err)
	}
	c.secrets.open()
	for i := range 4 {
		w := &workerHost{c: c, name: fmt.Sprintf("w%d", i+1), address: fmt.Sprintf("127.0.0.1:%d", 8001+i)}
		c.workers = append(c.workers, w)
		w.start()
	}
	return c
}

// callerAddress is where the client and the checks run.
const callerAddress = "127.0.0.1:9001"

func (c *cluster) caller() host { return host{net: c.net, address: callerAddress} }

func (c *cluster) addresses() (list []string) {
	for _, r := range c.replicas {
		list = append(list, r.address)
	}
	return list
}

func (c *cluster) everybody() []string {
	list := append(c.addresses(), callerAddress)
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

var (
	verbose   = os.Getenv("SIMULATION_LOG") != ""
	storeKind = os.Getenv("DTASK_LOG_STORE") // of the log: bolt or wal
)

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
	x, err := worker.New(c.secrets.worker(worker.Config{
		Join: c.addresses(), Name: w.name, Slots: 3, WorkDir: filepath.Join(c.dir, w.name), DrainTimeout: -1,
		Resources: map[string]int64{"cpu": 8000, "memory": 1 << 40, "disk": 1 << 40},
	}), worker.WithDialer(host{net: c.net, address: w.address}.Dial))
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
