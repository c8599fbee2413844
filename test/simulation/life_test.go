package simulation_test

import (
	"flag"
	"math/rand/v2"
	"time"

	"github.com/dtask/dtask/internal/timescale"
)

var (
	clusterKind   = flag.String("cluster.kind", "years", "years: mostly slow clusters, with long calms between storms; storms: nothing but storms, at the product's pace or a little slower")
	clusterLosses = flag.Int("cluster.losses", 0, "how many leader losses there must be: a run with fewer proves too little")
	clusterPace   = flag.Float64("cluster.pace", 0, "the pace of all clusters; default drawn by the seed")
)

// life is what a seed draws before anything begins.
//
// All times of a cluster are scaled by one pace: heartbeats, elections, leases,
// sweeps, comparisons, how long faults last and work takes. At the product's pace, 1, a
// day of a cluster costs minutes of a processor; at 60 it has the events of 24
// minutes. What is not scaled are the ages at which things are forgotten.
type life struct {
	pace   timescale.Factor
	length time.Duration
	every  time.Duration // between two faults of a storm, on average

	between       rand.Rand // decides on storms and lulls
	stormy        time.Duration
	quiet         time.Duration
	nothingButOne bool // one storm, all the time
}

// drawLife draws a life of a kind.
func drawLife(seed uint64, kind string) life {
	r := rand.New(rand.NewPCG(seed, 4))
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	paces := []timescale.Factor{1, 5, 15, 30, 30, 60, 60, 60, 60, 60}
	if kind == "storms" {
		paces = []timescale.Factor{1, 2, 4, 4}
	}
	l := life{between: *rand.New(rand.NewPCG(seed, 5)), pace: paces[r.IntN(len(paces))]}
	if *clusterPace > 0 {
		l.pace = timescale.Factor(*clusterPace)
	}
	if kind == "storms" {
		l.nothingButOne = true
		l.length, l.every = l.pace.Scale(time.Hour), l.pace.Scale(time.Second+upTo(2*time.Second))
		return l
	}
	l.length, l.every = l.pace.Scale(4*time.Hour), l.pace.Scale(3*time.Second+upTo(9*time.Second))
	l.stormy, l.quiet = l.pace.Scale(5*time.Minute+upTo(10*time.Minute)), l.pace.Scale(30*time.Minute+upTo(time.Hour))
	return l
}

// storm is how long the next storm lasts, and lull the calm after it.
func (l *life) storm() time.Duration {
	if l.nothingButOne {
		return l.length
	}
	return l.around(l.stormy)
}

func (l *life) lull() time.Duration {
	if l.nothingButOne {
		return l.length
	}
	return l.around(l.quiet)
}

// around is half to one and a half times d.
func (l *life) around(d time.Duration) time.Duration {
	return d/2 + time.Duration(l.between.Int64N(int64(d)))
}
