package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dtask/dtask/client"
)

// startLimit is how long a cluster may take until it is ready: a guard against
// hanging, not a promise. A machine may be ten times slower than usual.
const startLimit = 5 * time.Minute

// Config describes a cluster.
type Config struct {
	// Programs are the programs to run. Default: Find.
	Programs Programs
	// Dir is the directory of everything the cluster keeps. Default: a new one in
	// the directory for temporary files.
	Dir string
	// Coordinators and Workers are how many to have. Default: 3 and 0.
	Coordinators, Workers int
	// Slots of each worker. Default 4.
	Slots int
	// DataDirectory is the data directory of each coordinator within the directory of its
	// own, for a disk that is mounted there. Default: that directory itself.
	DataDirectory string
	// CoordinatorFlags and WorkerFlags are added to every command line.
	CoordinatorFlags, WorkerFlags []string
	// Labels are those that each worker declares, by its name. In a cluster with TLS, workers
	// that exist when it starts join with strings that grant them. Default: none.
	Labels func(worker string) map[string]string
	// Env is added to every environment.
	Env []string
	// CoordinatorProgram and WorkerProgram are what coordinators and workers run.
	// Default: dtaskd, dtask-worker.
	CoordinatorProgram, WorkerProgram string
	// TLS makes a cluster with TLS and identities: its coordinators have certificates,
	// workers have keys, and Ctl and clients the token of an admin.
	TLS bool
	// Address makes the addresses of coordinators, two for each. Default:
	// FreePort.
	Address func(ctx context.Context, name string) (string, error)
}

// A Coordinator is one dtaskd.
type Coordinator struct {
	*Process

	Addr    string // of --listen
	HTTP    string // of --http
	DataDir string

	security *security // nil: no TLS
}

// Is tells whether a server id is this coordinator's: its own, or one of those that
// the cluster gave it when it came back without its directory, such as n2-1.
func (n *Coordinator) Is(id string) bool {
	number, again := strings.CutPrefix(id, n.Name+"-")
	if !again {
		return id == n.Name
	}
	_, err := strconv.ParseUint(number, 10, 32)
	return err == nil
}

// A Worker is one dtask-worker.
type Worker struct {
	*Process

	Dir string // its own directory
}

// A Cluster is some coordinators and workers. Its methods may be called from any
// goroutine.
type Cluster struct {
	Ctl

	// Dir holds data, logs and whatever a test puts there.
	Dir string

	cfg          Config
	security     *security // nil: no TLS
	coordinators []*Coordinator

	mu      sync.Mutex // guards workers
	workers []*Worker
}

// New prepares a cluster and starts nothing.
func New(ctx context.Context, cfg Config) (*Cluster, error) {
	if cfg.Coordinators == 0 {
		cfg.Coordinators = 3
	}
	if cfg.Slots == 0 {
		cfg.Slots = 4
	}
	if cfg.CoordinatorProgram == "" {
		cfg.CoordinatorProgram = coordinatorProgram
	}
	if cfg.WorkerProgram == "" {
		cfg.WorkerProgram = workerProgram
	}
	if cfg.Address == nil {
		cfg.Address = func(ctx context.Context, _ string) (string, error) { return FreePort(ctx) }
	}
	var err error
	if cfg.Programs.Dir == "" {
		if cfg.Programs, err = Find(); err != nil {
			return nil, err
		}
	}
	if cfg.Dir == "" {
		if cfg.Dir, err = os.MkdirTemp("", "dtask-"); err != nil {
			return nil, fmt.Errorf("making a directory for the cluster: %w", err)
		}
	}
	c := &Cluster{Dir: cfg.Dir, cfg: cfg}
	if cfg.TLS {
		if c.security, err = newSecurity(cfg.Dir); err != nil {
			return nil, err
		}
	}
	c.Ctl = Ctl{Programs: cfg.Programs, Env: append(c.security.env(), cfg.Env...)}
	if err := c.plan(ctx); err != nil {
		return nil, err
	}
	for i := range cfg.Workers {
		c.AddWorker("w" + strconv.Itoa(i+1))
	}
	return c, nil
}

// plan gives every coordinator its addresses and command line.
func (c *Cluster) plan(ctx context.Context) error {
	var peers []string
	for i := range c.cfg.Coordinators {
		n := &Coordinator{security: c.security}
		name := "n" + strconv.Itoa(i+1)
		for _, addr := range []*string{&n.Addr, &n.HTTP} {
			var err error
			if *addr, err = c.cfg.Address(ctx, name); err != nil {
				return err
			}
		}
		n.DataDir = filepath.Join(c.Dir, name, c.cfg.DataDirectory)
		peers = append(peers, name+"="+n.Addr)
		c.coordinators = append(c.coordinators, n)
		c.Addrs = append(c.Addrs, n.Addr)
	}
	for i, n := range c.coordinators {
		if err := c.assign(n, "n"+strconv.Itoa(i+1), peers); err != nil {
			return err
		}
	}
	return nil
}

// assign gives a coordinator its name and its command line, with its peers and further
// flags.
func (c *Cluster) assign(n *Coordinator, name string, peers []string, flags ...string) error {
	secure, err := c.security.coordinatorFlags(name)
	if err != nil {
		return err
	}
	n.Process = c.process(name, c.cfg.CoordinatorProgram, slices.Concat([]string{
		"--id", name, "--data-dir", n.DataDir, "--listen", n.Addr, "--http", n.HTTP, "--peers", strings.Join(peers, ","),
	}, secure, c.cfg.CoordinatorFlags, flags))
	return nil
}

// process makes a process of the cluster.
func (c *Cluster) process(name, program string, args []string) *Process {
	return NewProcess(name, c.Dir, c.cfg.Programs.Path(program), args, c.cfg.Env)
}

// Imposter makes a coordinator with the command line of another but its own
// directory and, if it is to run beside the other, its own addresses. It is not
// part of the cluster: the caller starts and kills it.
func (c *Cluster) Imposter(ctx context.Context, n *Coordinator, ownAddress bool) (*Coordinator, error) {
	name := "imposter-of-" + n.Name
	other := &Coordinator{Addr: n.Addr, HTTP: n.HTTP, DataDir: filepath.Join(c.Dir, name), security: c.security}
	if ownAddress {
		for _, addr := range []*string{&other.Addr, &other.HTTP} {
			var err error
			if *addr, err = FreePort(ctx); err != nil {
				return nil, err
			}
		}
	}
	args := slices.Clone(n.args)
	for i := range args[:len(args)-1] {
		switch args[i] {
		case "--data-dir":
			args[i+1] = other.DataDir
		case "--listen":
			args[i+1] = other.Addr
		case "--http":
			args[i+1] = other.HTTP
		}
	}
	other.Process = c.process(name, c.cfg.CoordinatorProgram, args)
	return other, nil
}

// AddCoordinator adds a coordinator that knows all others, and does not start it: it
// waits until dtaskctl cluster add lets it in. No other method may be called at the
// same time.
func (c *Cluster) AddCoordinator(ctx context.Context, name string, flags ...string) (*Coordinator, error) {
	n, err := c.Newcomer(ctx, name, flags...)
	if err != nil {
		return nil, err
	}
	c.coordinators = append(c.coordinators, n)
	c.Addrs = append(slices.Clone(c.Addrs), n.Addr)
	return n, nil
}

// Newcomer makes a coordinator that knows all others, as AddCoordinator does, but is
// not part of the cluster: the caller starts it, has it let in, and kills it.
func (c *Cluster) Newcomer(ctx context.Context, name string, flags ...string) (*Coordinator, error) {
	n := &Coordinator{DataDir: filepath.Join(c.Dir, name), security: c.security}
	for _, addr := range []*string{&n.Addr, &n.HTTP} {
		var err error
		if *addr, err = c.cfg.Address(ctx, name); err != nil {
			return nil, err
		}
	}
	var peers []string
	for _, other := range append(c.Coordinators(), n) {
		id := name
		if other != n {
			id = other.Name
		}
		peers = append(peers, id+"="+other.Addr)
	}
	if err := c.assign(n, name, peers, flags...); err != nil {
		return nil, err
	}
	return n, nil
}

// Again makes a coordinator with the command line of another and further flags, in its
// directory. The caller starts and kills it, and only one of the two at a time.
func (c *Cluster) Again(n *Coordinator, flags ...string) *Coordinator {
	other := &Coordinator{Addr: n.Addr, HTTP: n.HTTP, DataDir: n.DataDir, security: c.security}
	other.Process = c.process(n.Name, coordinatorProgram, append(slices.Clone(n.args), flags...))
	return other
}

// AddWorker adds a worker that knows the given coordinators, or all, and does
// not start it. Flags are added behind the cluster's.
func (c *Cluster) AddWorker(name string, flags ...string) *Worker {
	w := &Worker{Dir: filepath.Join(c.Dir, name)}
	args := []string{"--name", name, "--slots", strconv.Itoa(c.cfg.Slots), "--work-dir", w.Dir}
	if !slices.Contains(flags, "--join") {
		args = append(args, "--join", c.joinOf(name))
	}
	args = slices.Concat(args, c.labelFlags(name), c.cfg.WorkerFlags, flags)
	w.Process = c.process(name, c.cfg.WorkerProgram, args)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers = append(c.workers, w)
	return w
}

// Coordinators are all coordinators.
func (c *Cluster) Coordinators() []*Coordinator { return slices.Clone(c.coordinators) }

// LogStore is the log store of all coordinators, or "mixed".
func (c *Cluster) LogStore() string {
	store := c.coordinators[0].logStore()
	for _, n := range c.coordinators[1:] {
		if n.logStore() != store {
			return "mixed"
		}
	}
	return store
}

// Workers are all workers.
func (c *Cluster) Workers() []*Worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.workers)
}

// Coordinator finds a coordinator by its name, or by the server id that it has now;
// nil if missing.
func (c *Cluster) Coordinator(name string) *Coordinator {
	for _, n := range c.coordinators {
		if n.Is(name) {
			return n
		}
	}
	return nil
}

// Worker finds a worker by name; nil if missing.
func (c *Cluster) Worker(name string) *Worker {
	for _, w := range c.Workers() {
		if w.Name == name {
			return w
		}
	}
	return nil
}

// Start starts all that does not run, and returns once there is a leader, every
// coordinator is ready, every worker is up, and the cluster has the feature level of its
// builds.
func (c *Cluster) Start(ctx context.Context) error {
	for _, n := range c.coordinators {
		if !n.Running() {
			if err := n.Start(ctx); err != nil {
				return err
			}
		}
	}
	if err := c.security.open(ctx, c); err != nil {
		return err
	}
	for _, w := range c.Workers() {
		if !w.Running() {
			if err := w.Start(ctx); err != nil {
				return err
			}
		}
	}
	if err := c.AwaitReady(ctx); err != nil {
		return err
	}
	return c.awaitLevel(ctx)
}

// AwaitReady returns once there is a leader, every running coordinator is ready,
// and every running worker is up.
func (c *Cluster) AwaitReady(ctx context.Context) error {
	for _, n := range c.coordinators {
		if n.Running() {
			if err := c.AwaitCoordinator(ctx, n); err != nil {
				return err
			}
		}
	}
	if _, err := c.AwaitLeader(ctx); err != nil {
		return err
	}
	for _, w := range c.Workers() {
		if w.Running() {
			if err := c.AwaitWorker(ctx, w.Name, "up"); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close ends every process of the cluster and returns once they are gone.
func (c *Cluster) Close() error {
	var errs []error
	for _, w := range c.Workers() {
		errs = append(errs, w.Kill())
	}
	for _, n := range c.coordinators {
		errs = append(errs, n.Kill())
	}
	return errors.Join(errs...)
}

// removeLimit is how long commands may take to end whose workers were killed: a guard, as
// startLimit.
const removeLimit = time.Minute

// Remove removes the cluster's directory. The supervisors of workers that Close has killed end
// their commands a moment later, which may create files there until then.
func (c *Cluster) Remove() error {
	for end := time.Now().Add(removeLimit); ; time.Sleep(10 * time.Millisecond) {
		if err := os.RemoveAll(c.Dir); err == nil {
			return nil
		} else if time.Now().After(end) {
			return fmt.Errorf("removing the cluster's directory: %w", err)
		}
	}
}

// Secured reports whether the cluster has TLS and identities.
func (c *Cluster) Secured() bool { return c.security != nil }

// Secrets are the files of a cluster with TLS for programs that do not use Ctl.
type Secrets struct {
	CA    string // certificate of the CA
	Token string // of an admin
	Join  string // join string of workers
}

// Secrets returns the files of a cluster with TLS.
func (c *Cluster) Secrets() Secrets {
	return Secrets{CA: c.security.CAFile(), Token: c.security.path(tokenFile), Join: c.security.path(joinFile)}
}

// ClientConfig is how a client reaches the given coordinators, or all. In a cluster with
// TLS, the client is an admin.
func (c *Cluster) ClientConfig(at ...*Coordinator) client.Config {
	addrs := slices.Clone(c.Addrs)
	if len(at) > 0 {
		addrs = nil
		for _, n := range at {
			addrs = append(addrs, n.Addr)
		}
	}
	return c.security.client(client.Config{Addrs: addrs})
}

// Client returns a client that knows the given coordinators, or all. The caller
// closes it.
func (c *Cluster) Client(at ...*Coordinator) (*client.Client, error) {
	cl, err := client.New(c.ClientConfig(at...))
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return cl, nil
}

// join is what workers join with, which know all coordinators.
func (c *Cluster) join() string { return c.security.join(strings.Join(c.Addrs, ",")) }

// At is Ctl with only these coordinators as its addresses.
func (c *Cluster) At(at ...*Coordinator) Ctl {
	ctl := c.Ctl
	ctl.Addrs = nil
	for _, n := range at {
		ctl.Addrs = append(ctl.Addrs, n.Addr)
	}
	return ctl
}

// SecondOf makes another process with a worker's name and a directory of its own,
// which knows all coordinators. In a cluster with TLS it has a copy of the worker's key. It
// is not part of the cluster: the caller starts and kills it.
func (c *Cluster) SecondOf(k *Worker, flags ...string) (*Process, error) {
	dir := k.Dir + "-second"
	if err := c.security.clone(k.Dir, dir); err != nil {
		return nil, err
	}
	args := []string{"--name", k.Name, "--slots", strconv.Itoa(c.cfg.Slots), "--work-dir", dir, "--join", c.joinOf(k.Name)}
	return c.process(k.Name+"-second", c.cfg.WorkerProgram, slices.Concat(args, c.labelFlags(k.Name), flags)), nil
}

// Unnamed makes a worker without --name, and without --work-dir unless flags have
// it, which knows all coordinators. It is not part of the cluster: the caller starts
// and kills it.
func (c *Cluster) Unnamed(process string, flags ...string) *Process {
	args := append([]string{"--slots", strconv.Itoa(c.cfg.Slots), "--join", c.join()}, flags...)
	return c.process(process, c.cfg.WorkerProgram, args)
}
