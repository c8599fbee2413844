package nemesis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Options describe a plan.
type Options struct {
	Seed   uint64
	Faults []Fault
	// Often maps a kind to how many times a deck contains it (default once). Optional.
	Often map[string]int
	// Phases is the number of phases, each with faults for Safety and then without,
	// until work resumes.
	Phases int
	Safety time.Duration
	// Pace is the longest time between two steps; the shortest is a quarter of it.
	Pace time.Duration
	// Most is the longest time that a fault holds; the shortest is 0.2 s.
	Most time.Duration
	// Alive returns nil when work has resumed and nothing is missing. It is called
	// after each phase, when everything is healed, with a time limit.
	Alive func(ctx context.Context) error
	// Enough ends the plan early, after a phase. Optional.
	Enough func(o *Outcome) bool
}

// An Outcome records what a plan did.
type Outcome struct {
	Fired  map[string]int // kind → times
	Names  map[string]int // kind and name → times
	Cannot map[string]string
	Steps  []Step
	Phases int
}

// A Step is one fault that was applied.
type Step struct {
	At    time.Duration `json:"at"` // since the start of the plan
	Kind  string        `json:"kind"`
	Name  string        `json:"name"`
	Hold  time.Duration `json:"hold"`
	Took  time.Duration `json:"took"`
	Error string        `json:"error,omitempty"`
}

// shortest is the shortest time that a fault holds.
const shortest = 200 * time.Millisecond

// plan is a running plan.
type plan struct {
	o      Options
	w      *World
	random *rand.Rand
	began  time.Time
	deck   []Fault
	number uint64 // of faults drawn

	mu      sync.Mutex // guards all below
	out     *Outcome
	problem error
}

// Run goes through the phases. It returns what was done, also with an error: the
// suite itself is broken, or work did not resume.
func Run(ctx context.Context, w *World, o Options) (*Outcome, error) {
	p := &plan{
		o: o, w: w, random: rand.New(rand.NewPCG(o.Seed, 3)), began: time.Now(),
		out: &Outcome{Fired: make(map[string]int), Names: make(map[string]int), Cannot: make(map[string]string)},
	}
	for p.out.Phases < o.Phases && ctx.Err() == nil {
		if err := p.phase(ctx); err != nil {
			return p.out, err
		}
		p.out.Phases++
		if o.Enough != nil && o.Enough(p.out) {
			break
		}
	}
	return p.out, context.Cause(ctx)
}

// phase is one phase with faults, and one without.
func (p *plan) phase(ctx context.Context) error {
	bad, end := context.WithTimeout(ctx, p.o.Safety)
	defer end()
	var group sync.WaitGroup
	for bad.Err() == nil {
		for range 1 + p.random.IntN(3) {
			f := p.draw()
			p.number++
			world := p.w.with(rand.New(rand.NewPCG(p.o.Seed, p.number)))
			hold := p.hold()
			group.Go(func() { p.apply(bad, world, f, hold) })
		}
		pauseOr(bad, p.o.Pace/4+time.Duration(p.random.Int64N(int64(p.o.Pace)*3/4)))
	}
	group.Wait()
	p.mu.Lock()
	problem := p.problem
	p.mu.Unlock()
	if problem != nil {
		return problem
	}
	if ctx.Err() != nil {
		return nil
	}
	healed := time.Now()
	if err := p.o.Alive(ctx); err != nil {
		return fmt.Errorf("work has not resumed %s after everything was healed: %w", time.Since(healed).Round(time.Millisecond), err)
	}
	p.w.Log("phase %d: work resumed %s after everything was healed", p.out.Phases+1, time.Since(healed).Round(time.Millisecond))
	return nil
}

// draw takes a fault from a shuffled deck, so that each gets a turn.
func (p *plan) draw() Fault {
	if len(p.deck) == 0 {
		for _, f := range p.o.Faults {
			for range max(1, p.o.Often[f.Kind()]) {
				p.deck = append(p.deck, f)
			}
		}
		p.random.Shuffle(len(p.deck), func(i, j int) { p.deck[i], p.deck[j] = p.deck[j], p.deck[i] })
	}
	f := p.deck[len(p.deck)-1]
	p.deck = p.deck[:len(p.deck)-1]
	return f
}

// hold returns a duration that is spread evenly over the orders of magnitude between
// the shortest and the longest, which include the election timeout and the liveness
// timeout of workers.
func (p *plan) hold() time.Duration {
	low, high := math.Log(shortest.Seconds()), math.Log(p.o.Most.Seconds())
	return time.Duration(math.Exp(low+p.random.Float64()*(high-low)) * float64(time.Second))
}

// busyTries is how often a fault tries to take what another one has.
const busyTries = 4

func (p *plan) apply(ctx context.Context, w *World, f Fault, hold time.Duration) {
	at := time.Since(p.began)
	err := f.Apply(ctx, w, hold)
	for tries := 1; errors.Is(err, ErrBusy) && tries < busyTries && ctx.Err() == nil; tries++ {
		pauseOr(ctx, p.o.Pace/4)
		at = time.Since(p.began)
		err = f.Apply(ctx, w, hold)
	}
	step := Step{At: at, Kind: f.Kind(), Name: f.Name(), Hold: hold, Took: time.Since(p.began) - at}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.out.Fired[f.Kind()]++
		p.out.Names[f.Kind()+" "+f.Name()]++
	case errors.Is(err, ErrBusy) || errors.Is(err, ErrCannot):
		if ctx.Err() == nil || p.out.Cannot[f.Kind()+" "+f.Name()] == "" { // not only because the phase has ended
			p.out.Cannot[f.Kind()+" "+f.Name()] = err.Error()
		}
	case p.problem == nil:
		p.problem = fmt.Errorf("applying %s %s: %w", f.Kind(), f.Name(), err)
	}
	if err != nil {
		step.Error = err.Error()
	}
	p.out.Steps = append(p.out.Steps, step)
}

// Kinds returns the kinds that fired.
func (o *Outcome) Kinds() []string { return slices.Sorted(maps.Keys(o.Fired)) }

// With returns the sum of two outcomes.
func (o *Outcome) With(other *Outcome) *Outcome {
	sum := &Outcome{Fired: make(map[string]int), Names: make(map[string]int), Cannot: make(map[string]string)}
	sum.Add(o)
	sum.Add(other)
	return sum
}

// Add adds the outcome of another plan.
func (o *Outcome) Add(other *Outcome) {
	for k, n := range other.Fired {
		o.Fired[k] += n
	}
	for k, n := range other.Names {
		o.Names[k] += n
	}
	maps.Copy(o.Cannot, other.Cannot)
	o.Steps = append(o.Steps, other.Steps...)
	o.Phases += other.Phases
}
