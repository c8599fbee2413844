package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// Config configures a Load.
type Config struct {
	// Addrs are addresses of coordinators, HOST:PORT each.
	Addrs []string
	// Workers is the number of workers, Slots that of each worker's slots.
	// Default: 1 and 1.
	Workers, Slots int
	// Prefetch is how many attempts each worker accepts beyond its slots.
	Prefetch int
	// Connections is the number of shared connections to each coordinator.
	// Default 16.
	Connections int
	// Own gives each worker a stream of its own. Otherwise the workers of a
	// connection share one.
	Own bool
	// Secure has what secures the connection of each worker: a key belongs to one worker,
	// so that each needs a connection of its own. Default: plaintext.
	Secure []credentials.TransportCredentials
	// Opening bounds how many workers open a session at a time: one process can't do the
	// handshakes of thousands before they time out. Default: Workers.
	Opening int
	// Name is the prefix of the workers' names. Default "load".
	Name string
	// HeartbeatInterval is the time between two heartbeats. Default: 1 s.
	HeartbeatInterval time.Duration
	// Takes draws how long a task takes. Default: Fixed(0).
	Takes Durations
	// Seed is the seed of all random draws.
	Seed uint64
	// Labels of every worker.
	Labels map[string]string
	// OnStart is called for each attempt that starts, by many goroutines; it
	// must not block. Optional.
	OnStart func(job uint64, task uint32)
}

// A Load is a set of simulated workers.
type Load struct {
	cfg     Config
	workers []*simulated
	conns   *connections
	ends    ends

	streams sync.WaitGroup // goroutines of the streams
	counts  counts
	latency Latency
	opened  chan struct{} // size 1: a session was opened
	// opening has capacity for the workers that open sessions at a time.
	opening chan struct{}

	mu      sync.Mutex // guards reasons
	reasons map[string]int
}

// counts are read while they are written.
type counts struct {
	open, sessions, lost, assigned, started, completed, superseded, released, stealRequests, received, sent atomic.Int64
}

// Stats counts events since the start, and open sessions.
type Stats struct {
	Open          int64 // sessions open now
	Sessions      int64 // sessions opened
	Lost          int64 // sessions that ended before Run did
	Assigned      int64 // attempts received
	Started       int64 // attempts started
	Completed     int64 // successes acknowledged as accepted
	Superseded    int64 // acknowledged as superseded
	Released      int64 // attempts released on steal requests
	StealRequests int64 // attempts that the leader requested back
	Received      int64 // messages received
	Sent          int64 // messages sent
	Handshakes    int64 // TLS handshakes that were complete
	Unsecured     int64 // TLS handshakes that were not
}

// New returns a Load. The error joins all problems of cfg.
func New(cfg Config) (*Load, error) {
	if cfg.Workers == 0 {
		cfg.Workers = 1
	}
	if cfg.Slots == 0 {
		cfg.Slots = 1
	}
	if cfg.Connections == 0 {
		cfg.Connections = 16
	}
	if cfg.Name == "" {
		cfg.Name = "load"
	}
	if cfg.Takes == nil {
		cfg.Takes = Fixed(0)
	}
	var errs []error
	if len(cfg.Addrs) == 0 {
		errs = append(errs, errors.New("load: missing address"))
	}
	if cfg.Workers < 1 || cfg.Slots < 1 || cfg.Slots > 65535 || cfg.Connections < 1 || cfg.Prefetch < 0 || cfg.Prefetch > 65535 || cfg.HeartbeatInterval < 0 || cfg.Opening < 0 {
		errs = append(errs, errors.New("load: workers, slots, connections and the time between heartbeats must be positive"))
	}
	if n := len(cfg.Secure); n > 0 && (n != cfg.Workers || cfg.Connections != cfg.Workers || !cfg.Own) {
		errs = append(errs, errors.New("load: workers with keys need a connection, a stream and a key each"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if cfg.Opening == 0 {
		cfg.Opening = cfg.Workers
	}
	l := &Load{cfg: cfg, opening: make(chan struct{}, cfg.Opening), conns: newConnections(cfg.Connections, cfg.Secure), opened: make(chan struct{}, 1), reasons: make(map[string]int)}
	l.ends.changed = make(chan struct{}, 1)
	for i := range cfg.Workers {
		l.workers = append(l.workers, newSimulated(l, i))
	}
	return l, nil
}

// WorkerName is the name of a worker of a Load with a prefix of names.
func WorkerName(prefix string, index int) string { return fmt.Sprintf("%s-%05d", prefix, index) }

// Run keeps the sessions open until ctx is done, and returns when all have
// ended.
func (l *Load) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, w := range l.workers {
		all.Go(func() { w.run(ctx) })
	}
	all.Go(func() { l.sendHeartbeats(ctx) })
	all.Go(func() { l.ends.run(ctx) })
	all.Wait()
	l.conns.close()
	l.streams.Wait()
}

// Await waits until n sessions are open.
func (l *Load) Await(ctx context.Context, n int) error {
	for l.counts.open.Load() < int64(n) {
		select {
		case <-l.opened:
		case <-ctx.Done():
			return fmt.Errorf("load: %d of %d sessions are open: %w", l.counts.open.Load(), n, context.Cause(ctx))
		}
	}
	return nil
}

// Stats returns the current counts.
func (l *Load) Stats() Stats {
	c := &l.counts
	return Stats{
		Open: c.open.Load(), Sessions: c.sessions.Load(), Lost: c.lost.Load(), Assigned: c.assigned.Load(), Started: c.started.Load(),
		Completed: c.completed.Load(), Superseded: c.superseded.Load(), Released: c.released.Load(), StealRequests: c.stealRequests.Load(),
		Received: c.received.Load(), Sent: c.sent.Load(),
		Handshakes: l.conns.handshakes.complete.Load(), Unsecured: l.conns.handshakes.failed.Load(),
	}
}

// Latency is the distribution of the time from the stamp in the payload of a
// task (see Stamp) until it started here.
func (l *Load) Latency() *Latency { return &l.latency }

// maxReasons bounds the number of different reasons that are counted.
const maxReasons = 20

// Reasons returns the error texts with which sessions were lost, and their
// counts.
func (l *Load) Reasons() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.reasons)
}

func (l *Load) lost(reason error) {
	l.counts.lost.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	text := status.Convert(reason).Message()
	if _, known := l.reasons[text]; known || len(l.reasons) < maxReasons {
		l.reasons[text]++
	}
}

// StartedByWorker returns how many attempts each worker has started.
func (l *Load) StartedByWorker() []int64 {
	list := make([]int64, len(l.workers))
	for i, w := range l.workers {
		list[i] = w.started.Load()
	}
	return list
}

// heartbeatSteps is the number of steps over which the heartbeats of an
// interval are spread.
const heartbeatSteps = 50

// pauseThreshold is the delay of a step after which this process counts as
// paused: messages of the leader are unread then, and must not count as
// missing.
const pauseThreshold = 500 * time.Millisecond

// sendHeartbeats makes every worker send one heartbeat per interval, spread
// evenly.
func (l *Load) sendHeartbeats(ctx context.Context) {
	interval := l.cfg.HeartbeatInterval
	if interval == 0 {
		interval = time.Second
	}
	tick := time.NewTicker(interval / heartbeatSteps)
	defer tick.Stop()
	limit := max(livenessTimeout, 2*interval)
	last, begin := time.Now(), time.Time{} // begin: silence counts since then
	for step := 0; ; step++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		if now.Sub(last) > interval/heartbeatSteps+pauseThreshold {
			begin = now
		}
		last = now
		since := now.Add(-limit)
		if since.Before(begin) {
			since = time.Time{} // no worker can have timed out
		}
		for i := step % heartbeatSteps; i < len(l.workers); i += heartbeatSteps {
			l.workers[i].sendHeartbeat(since)
		}
	}
}

// random returns a random sequence for a worker.
func (l *Load) random(i int) *rand.Rand {
	return rand.New(rand.NewPCG(l.cfg.Seed, uint64(i))) //nolint:gosec // draws durations
}
