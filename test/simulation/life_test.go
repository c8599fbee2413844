package simulation_test

import (
	"cmp"
	"flag"
	"math/rand/v2"
	"time"

	"github.com/dtask/dtask/internal/timescale"
)

var (
	clusterKind   = flag.String("cluster.kind", "years", "kind of clusters: years (mostly slow, with long calms between storms) or storms (storms only, at full speed or a little slower)")
	clusterLosses = flag.Int("cluster.losses", 0, "minimum number of leader losses")
	clusterTLS    = flag.Int("cluster.tls", 4, "one in so many seeds has a cluster with TLS, a token and keys of workers (1: all, 0: none)")
	clusterLength = flag.Duration("cluster.length", 0, "duration of a storm of the kind storms at pace 1 (default: an hour)")
	clusterPace   = flag.Float64("cluster.pace", 0, "time scale of all clusters (default: drawn by the seed)")
)

// life is what a seed determines before the simulation.
//
// One factor, the pace, scales all times of a cluster: heartbeats, elections,
// leases, sweeps, comparisons, and the durations of faults and of work. At full
// speed, 1, a day of a cluster takes minutes of CPU time; at 60 it has
// the events of 24 minutes. Retention ages are not scaled.
type life struct {
	pace   timescale.Factor
	length time.Duration
	every  time.Duration // mean time between two faults of a storm
	store  string        // of the logs; "": the default

	distance time.Duration // between all hosts, in one direction
	secure   bool          // TLS, a token and keys of workers

	between       rand.Rand // for storms and lulls
	stormy        time.Duration
	quiet         time.Duration
	nothingButOne bool // one storm without end
}

// drawLife returns a random life of a kind.
func drawLife(seed uint64, kind string) life {
	r := rand.New(rand.NewPCG(seed, 4))
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	paces := []timescale.Factor{1, 5, 15, 30, 30, 60, 60, 60, 60, 60}
	if kind == "storms" {
		paces = []timescale.Factor{1, 2, 4, 4}
	}
	l := life{store: storeKind, between: *rand.New(rand.NewPCG(seed, 5)), pace: paces[r.IntN(len(paces))]}
	l.secure = *clusterTLS > 0 && rand.New(rand.NewPCG(seed, 6)).IntN(*clusterTLS) == 0
	if *clusterPace > 0 {
		l.pace = timescale.Factor(*clusterPace)
	}
	if kind == "storms" {
		l.nothingButOne = true
		l.length, l.every = l.pace.Scale(cmp.Or(*clusterLength, time.Hour)), l.pace.Scale(time.Second+upTo(2*time.Second))
		return l
	}
	l.length, l.every = l.pace.Scale(4*time.Hour), l.pace.Scale(3*time.Second+upTo(9*time.Second))
	l.stormy, l.quiet = l.pace.Scale(5*time.Minute+upTo(10*time.Minute)), l.pace.Scale(30*time.Minute+upTo(time.Hour))
	return l
}

// storm returns the duration of the next storm, and lull that of the calm after
// it.
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

// around returns a random duration between half and one and a half times d.
func (l *life) around(d time.Duration) time.Duration {
	return d/2 + time.Duration(l.between.Int64N(int64(d)))
}
