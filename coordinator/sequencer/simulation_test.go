package sequencer_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/test/record"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "first seed; without -sim.runs the only one")
	simRuns  = flag.Uint64("sim.runs", 0, "number of seeds (default 300)")
	simTrace = flag.Bool("sim.trace", false, "print every event; for one seed")
)

// TestNothingAcknowledgedIsLostWhateverHappens simulates leaders, replicas,
// workers and clients with all kinds of faults. It checks the guarantees on
// every entry, on the soft state and on what workers really executed. A seed
// determines a run.
func TestNothingAcknowledgedIsLostWhateverHappens(t *testing.T) {
	t.Parallel()
	switch {
	case *simRuns > 0:
		simulateMany(t, firstSeed(t), *simRuns)
	case *simSeed > 0:
		simulate(t, *simSeed, 1, false)
	case testing.Short():
		simulate(t, 1, 30, false)
	default:
		if total := simulate(t, 1, 300, false); total.Events < 100_000 && !t.Failed() {
			t.Errorf("300 seeds caused %d events: too few to prove anything", total.Events)
		}
	}
}

// firstSeed returns the requested seed, or the next one after the record's
// last.
func firstSeed(t *testing.T) uint64 {
	t.Helper()
	if *simSeed > 0 {
		return *simSeed
	}
	runs, err := record.Read(os.Getenv(record.Env))
	if err != nil {
		t.Fatal(err)
	}
	return record.Next(runs, "simulate")
}

// recordEvery is the number of seeds per line of the record, so that a long run
// that is interrupted records most of its work.
const recordEvery = 20_000

func simulateMany(t *testing.T, first, runs uint64) {
	t.Helper()
	for done := uint64(0); done < runs && !t.Failed(); done += recordEvery {
		total := simulate(t, first+done, min(runs-done, recordEvery), false)
		if t.Failed() {
			t.Logf("commit %s", record.Commit(t.Context()))
			total.Failed = t.Name()
		}
		if total.Failed == "" && total.Events < 500*int64(total.Seeds) && total.Seeds >= 1000 {
			t.Errorf("%d seeds caused %d events: too few to prove anything", total.Seeds, total.Events)
		}
		if err := record.AppendIfAsked(t.Context(), &total); err != nil {
			t.Error(err)
		}
	}
}

// TestNothingAcknowledgedIsLostWithTheGoroutinesOfATerm does the same with the
// sequencer's own goroutines, to find races. It can't be repeated exactly.
func TestNothingAcknowledgedIsLostWithTheGoroutinesOfATerm(t *testing.T) {
	t.Parallel()
	runs := uint64(60)
	if testing.Short() {
		runs = 10
	}
	simulate(t, max(*simSeed, 1), runs, true)
}

// TestTheSameSeedGivesTheSameRun makes failures reproducible by their seed.
func TestTheSameSeedGivesTheSameRun(t *testing.T) {
	t.Parallel()
	for n := range uint64(49) {
		seed := n
		if n >= 45 {
			seed = firstOriginSeed + n - 45
		} else if n >= 40 {
			seed = firstClockSeed + 5*(n-40)
		}
		var traces [2]uint64
		for i := range traces {
			synctest.Test(t, func(t *testing.T) {
				c := newSim(t, seed, false)
				c.run()
				traces[i] = c.trace
			})
		}
		if traces[0] != traces[1] {
			t.Errorf("seed %d: trace %x, then %x", seed, traces[0], traces[1])
		}
	}
}

// simulate runs seeds on all processors and logs the totals.
func simulate(t *testing.T, first, runs uint64, free bool) record.Run {
	t.Helper()
	total := record.Run{Suite: "simulate", Seed: first, Faults: map[string]int{}}
	var mu sync.Mutex // guards total
	var next atomic.Uint64
	began := time.Now()
	var processors sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		processors.Go(func() {
			for n := next.Add(1) - 1; n < runs && !t.Failed(); n = next.Add(1) - 1 {
				synctest.Test(t, func(t *testing.T) {
					c := newSim(t, first+n, free)
					c.run()
					mu.Lock()
					defer mu.Unlock()
					c.addTo(&total)
				})
			}
		})
	}
	processors.Wait()
	total.Seconds = time.Since(began).Seconds()
	t.Logf("%d seeds from %d on: %d events, %.0f events/s, %d leader losses, %d tasks, %.0f virtual s, faults %v",
		total.Seeds, first, total.Events, float64(total.Events)/total.Seconds, total.LeaderLosses, total.Tasks, total.VirtualSeconds, total.Faults)
	return total
}

func (c *sim) addTo(r *record.Run) {
	r.Seeds++
	r.Events += c.events
	r.LeaderLosses += c.losses
	r.VirtualSeconds += time.Since(simEpoch).Seconds()
	for _, j := range c.jobs {
		r.Tasks += int(j.sub.Total)
	}
	for f, n := range c.fired {
		r.Faults[f] += n
	}
}

// simOptions are what a seed determines before the simulation.
type simOptions struct {
	Workers, Twins, Jobs int
	Storm                time.Duration // duration of the faults
	FaultEvery           time.Duration // on average
	Latency              time.Duration // maximum of the log, without faults
	Lag                  time.Duration // maximum of the network
	EntryOps, InFlight   int
	KeepJobs             int
	KeepWorkers, Lease   time.Duration
	Skew                 [3]time.Duration // of the replicas' wall clocks
	Calm                 bool             // no faults: the same checks must hold
	DeadLetters          int              // notifications of dead letters: index in simDeadLetters
	Schedules            int
	Queues               bool
}

func simOptionsOf(rng *rand.Rand) simOptions {
	upTo := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
	o := simOptions{
		Workers: 2 + rng.IntN(4), Jobs: 2 + rng.IntN(6), Storm: 4*time.Second + upTo(8*time.Second),
		FaultEvery: 100*time.Millisecond + upTo(500*time.Millisecond),
		Latency:    time.Millisecond + upTo(20*time.Millisecond), Lag: time.Millisecond + upTo(40*time.Millisecond),
		EntryOps: 1 + rng.IntN(20), InFlight: 1 + rng.IntN(4), KeepJobs: 2 + rng.IntN(20),
		KeepWorkers: time.Second + upTo(20*time.Second), Lease: 5*time.Second + upTo(25*time.Second),
		Calm: rng.IntN(50) == 0,
	}
	o.DeadLetters = rng.IntN(len(simDeadLetters))
	if rng.IntN(5) == 0 {
		o.Twins = 1
	}
	if rng.IntN(40) == 0 { // long
		o.Jobs, o.Storm = o.Jobs+12, time.Minute+upTo(2*time.Minute)
	}
	if rng.IntN(20) == 0 { // many workers
		o.Workers += 10
	}
	for i := range o.Skew {
		o.Skew[i] = upTo(4*time.Second) - 2*time.Second
	}
	if rng.IntN(3) == 0 {
		o.Schedules = 1 + rng.IntN(2)
	}
	o.Queues = rng.IntN(3) == 0
	return o
}

// simEvent happens at a time.
type simEvent struct {
	at    time.Time
	order uint64 // orders events of the same time by when they were scheduled
	do    func()
}

func (e simEvent) before(o simEvent) bool {
	return e.at.Before(o.at) || e.at.Equal(o.at) && e.order < o.order
}

// simHeap is a binary heap of events.
type simHeap []simEvent

func (h *simHeap) push(e simEvent) {
	*h = append(*h, e)
	q := *h
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if !q[i].before(q[up]) {
			break
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
}

func (h *simHeap) pop() simEvent {
	q := *h
	top, last := q[0], len(q)-1
	q[0] = q[last]
	q[last] = simEvent{}
	q = q[:last]
	for i := 0; ; {
		low := 2*i + 1
		if low >= len(q) {
			break
		}
		if low+1 < len(q) && q[low+1].before(q[low]) {
			low++
		}
		if !q[low].before(q[i]) {
			break
		}
		q[i], q[low] = q[low], q[i]
		i = low
	}
	*h = q
	return top
}

// pick returns an element of a table by weight.
func pick[T any](rng *rand.Rand, table []T, weight func(T) int) T {
	sum := 0
	for _, x := range table {
		sum += weight(x)
	}
	n := rng.IntN(sum)
	at := slices.IndexFunc(table, func(x T) bool { n -= weight(x); return n < 0 })
	return table[at]
}
