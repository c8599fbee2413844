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

	"google.golang.org/grpc/status"
)

// Config describes a load.
type Config struct {
	// Addrs are coordinators, HOST:PORT each.
	Addrs []string
	// Workers and Slots of each. Default: 1 and 1.
	Workers, Slots int
	// Prefetch is how many attempts each may be given ahead of a free slot.
	Prefetch int
	// Connections is how many connections to a leader they share. Default 16.
	Connections int
	// Own gives each worker a stream of its own. Otherwise the workers of a connection
	// share one.
	Own bool
	// Name begins the name of every worker. Default "load".
	Name string
	// Beat is the time between two heartbeats. Default: what the leader says.
	HeartbeatInterval time.Duration
	// Takes draws how long a task takes. Default: Fixed(0).
	Takes Durations
	// Seed of what is drawn.
	Seed uint64
	// Labels of every worker.
	Labels map[string]string
	// Began, unless nil, is told of each attempt that begins. It is called by many
	// goroutines and must not wait.
	OnStart func(job uint64, task uint32)
}

// A Load is some workers. Make one with New.
type Load struct {
	cfg     Config
	workers []*simulated
	conns   *connections
	ends    ends

	streams sync.WaitGroup // goroutines of the streams
	counts  counts
	latency Latency
	opened  chan struct{} // size 1: a session was opened

	mu      sync.Mutex // guards reasons
	reasons map[string]int
}

// counts are read while others write them.
type counts struct {
	open, sessions, lost, assigned, begun, completed, superseded, released, asked, received, sent atomic.Int64
}

// Stats are counts since the beginning, and what is open now.
type Stats struct {
	Open       int64 // sessions now
	Sessions   int64 // opened
	Lost       int64 // ended other than by the end of Run
	Assigned   int64 // attempts received
	Begun      int64 // attempts begun
	Completed  int64 // successes acknowledged as accepted
	Superseded int64 // acknowledged as superseded
	Released   int64 // handed back because the leader asked
	Asked      int64 // attempts that the leader asked for
	Received   int64 // messages
	Sent       int64 // messages
}

// New makes a load. It returns everything that is wrong with cfg, joined.
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
		errs = append(errs, errors.New("load: at least one address is needed"))
	}
	if cfg.Workers < 1 || cfg.Slots < 1 || cfg.Slots > 65535 || cfg.Connections < 1 || cfg.Prefetch < 0 || cfg.Prefetch > 65535 || cfg.HeartbeatInterval < 0 {
		errs = append(errs, errors.New("load: workers, slots, connections and the time between heartbeats must be positive"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	l := &Load{cfg: cfg, conns: newConnections(cfg.Connections), opened: make(chan struct{}, 1), reasons: make(map[string]int)}
	l.ends.changed = make(chan struct{}, 1)
	for i := range cfg.Workers {
		l.workers = append(l.workers, newSimulated(l, i))
	}
	return l, nil
}

// Run holds the sessions until ctx is done, and returns when all have ended.
func (l *Load) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, w := range l.workers {
		all.Go(func() { w.run(ctx) })
	}
	all.Go(func() { l.beat(ctx) })
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

// Stats reads the counts.
func (l *Load) Stats() Stats {
	c := &l.counts
	return Stats{
		Open: c.open.Load(), Sessions: c.sessions.Load(), Lost: c.lost.Load(), Assigned: c.assigned.Load(), Begun: c.begun.Load(),
		Completed: c.completed.Load(), Superseded: c.superseded.Load(), Released: c.released.Load(), Asked: c.asked.Load(),
		Received: c.received.Load(), Sent: c.sent.Load(),
	}
}

// Latency is the time from the moment in the payload of a task (see Stamp) until
// it began here.
func (l *Load) Latency() *Latency { return &l.latency }

// maxReasons bounds the different reasons that are counted.
const maxReasons = 20

// Reasons counts why sessions were lost, in words.
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

// Begun gives how many attempts each worker has begun, in the order of their
// numbers.
func (l *Load) Begun() []int64 {
	list := make([]int64, len(l.workers))
	for i, w := range l.workers {
		list[i] = w.begun.Load()
	}
	return list
}

// beatSteps is over how many moments the heartbeats of an interval are spread.
const beatSteps = 50

// late is a step of the beats that came so late that this process was kept from its
// work: what the leader said meanwhile has not been read yet.
const late = 500 * time.Millisecond

// beat makes every worker beat once in an interval, spread evenly.
func (l *Load) beat(ctx context.Context) {
	interval := l.cfg.HeartbeatInterval
	if interval == 0 {
		interval = time.Second
	}
	tick := time.NewTicker(interval / beatSteps)
	defer tick.Stop()
	limit := max(livenessTimeout, 2*interval)
	last, begin := time.Now(), time.Time{} // begin: silence counts from then on
	for step := 0; ; step++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		if now.Sub(last) > interval/beatSteps+late {
			begin = now
		}
		last = now
		since := now.Add(-limit)
		if since.Before(begin) {
			since = time.Time{} // nobody was silent for so long
		}
		for i := step % beatSteps; i < len(l.workers); i += beatSteps {
			l.workers[i].sendHeartbeat(since)
		}
	}
}

// random gives each worker its own sequence.
func (l *Load) random(i int) *rand.Rand {
	return rand.New(rand.NewPCG(l.cfg.Seed, uint64(i))) //nolint:gosec // draws durations
}
