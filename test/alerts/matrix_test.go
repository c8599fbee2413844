package alerts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

const (
	// settleTime is longer than the offset of the rule with the longest one, after
	// division by scale, so that every rule can fire.
	settleTime = 15 * time.Second
	// fireLimit is how long an alert may take: a guard against hanging.
	fireLimit = 4 * time.Minute
)

// A fault is something that operators must learn of.
type fault struct {
	name   string
	config cluster.Config
	// prepare changes a cluster that is not started yet; nil: nothing.
	prepare func(t *testing.T, b *bed)
	// inject makes the fault. What it starts ends with the test.
	inject func(t *testing.T, b *bed)
	// fires are the alerts that must fire; may are further ones that may, because they
	// describe a consequence whose duration the test doesn't control.
	fires, may []string
}

// A bed is a cluster of three coordinators and two workers.
type bed struct {
	*cluster.Cluster

	*server // nil: no Prometheus

	workers []string // addresses of --http

	leader, follower *cluster.Coordinator
	cut              func(t *testing.T) // see fault "cut off"
}

// newBed starts a cluster with Prometheus, in which no alert fires.
func newBed(t *testing.T, f *fault) *bed {
	t.Helper()
	b := startBed(t, f)
	b.server = monitor(t, b.Cluster, b.workers)
	clustertest.Must(t, cluster.Pause(t.Context(), settleTime))
	b.mustHaveFired(t, nil, nil)
	return b
}

// startBed starts a cluster for a fault, without Prometheus.
func startBed(t *testing.T, f *fault) *bed {
	t.Helper()
	f.config.Workers = 2
	// Without a leader for 2 s is an alert here: a busy machine must not cause elections.
	f.config.CoordinatorFlags = append(slices.Clone(f.config.CoordinatorFlags), "--raft-heartbeat", "10s")
	b := &bed{Cluster: clustertest.New(t, f.config)}
	for _, w := range b.Workers() {
		address, err := cluster.FreePort(t.Context())
		clustertest.Must(t, err)
		w.AddArgs("--http", address)
		b.workers = append(b.workers, address)
	}
	if f.prepare != nil {
		f.prepare(t, b)
	}
	clustertest.Must(t, b.Start(t.Context()))
	b.leader = clustertest.Leader(t, b.Cluster)
	b.follower = b.Followers(b.leader)[0]
	return b
}

// mustHaveFired fails the test unless these alerts have fired, and perhaps some that may.
func (b *bed) mustHaveFired(t *testing.T, fires, may []string) {
	t.Helper()
	got, err := b.fired(t.Context())
	clustertest.Must(t, err)
	for _, name := range got {
		if !slices.Contains(fires, name) && !slices.Contains(may, name) {
			t.Errorf("%s has fired", name)
		}
	}
	for _, name := range fires {
		if !slices.Contains(got, name) {
			t.Errorf("%s has not fired", name)
		}
	}
}

func TestEachAlertFiresInItsFaultAndOthersStaySilent(t *testing.T) {
	t.Parallel()
	needsSuite(t)
	t.Logf("durations of rules and scrapes are divided by %d, thresholds are %v", scale, thresholds)
	for _, f := range faults() {
		t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, &f)
			began := time.Now()
			f.inject(t, b)
			clustertest.Must(t, cluster.Until(t.Context(), fmt.Sprint(f.fires, " fire"), fireLimit, func(ctx context.Context) error {
				got, err := b.fired(ctx)
				for _, name := range f.fires {
					if err == nil && !slices.Contains(got, name) {
						err = fmt.Errorf("%s is missing in %v", name, got)
					}
				}
				return err
			}))
			t.Logf("%s: %v fired within %v", f.name, f.fires, time.Since(began).Round(100*time.Millisecond))
			b.mustHaveFired(t, f.fires, f.may)
		})
	}
}

func TestEveryAlertHasAFault(t *testing.T) {
	t.Parallel()
	var covered []string
	for _, f := range faults() {
		covered = append(covered, f.fires...)
		for _, name := range f.may {
			if !slices.Contains(alertNames(t), name) {
				t.Errorf("%s: unknown alert %s", f.name, name)
			}
		}
	}
	slices.Sort(covered)
	if got, want := slices.Compact(covered), alertNames(t); !slices.Equal(got, want) {
		t.Errorf("faults let %v fire,\nthe alerts are %v", got, want)
	}
}
