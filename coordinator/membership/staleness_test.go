package membership

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/transport"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// other is another replica.
type other struct {
	runs    bool          // Raft runs
	leads   time.Duration // after this time; 0 = never
	stale   bool          // it has seen more than the directory has
	refuses bool
	gone    bool // it vanished: nothing answers
}

// asking returns a check that asks other replicas.
func asking(others map[string]other) stalenessCheck {
	started := time.Now()
	f := stalenessCheck{
		ask: func(ctx context.Context, address string) (*dtaskv1.AdmitResponse, error) {
			o := others[address]
			switch {
			case o.gone:
				<-ctx.Done()
				return nil, ctx.Err()
			case o.refuses:
				return nil, &transport.RefusedError{ServerID: "n1", Reason: "it was removed"}
			case o.runs && (o.stale || o.leads > 0 && time.Since(started) >= o.leads):
				return &dtaskv1.AdmitResponse{Stale: o.stale}, nil
			}
			return nil, errors.New("this replica is not the leader")
		},
		isRunning: func(ctx context.Context, address string) bool {
			if others[address].gone {
				<-ctx.Done()
			}
			return others[address].runs
		},
	}
	for address := range others {
		f.others = append(f.others, address)
	}
	return f
}

func TestADirectoryIsStaleIfAnyReplicaHasSeenMore(t *testing.T) {
	t.Parallel()
	follows := other{runs: true}
	for name, x := range map[string]struct {
		others  map[string]other
		stale   bool
		refused bool
		after   time.Duration
	}{
		"the leader misses nothing":                            {others: map[string]other{"a": {runs: true, leads: 1}, "b": follows}, after: staleRoundInterval},
		"the leader misses something":                          {others: map[string]other{"a": {runs: true, stale: true}, "b": follows}, stale: true},
		"a former leader misses something, the leader nothing": {others: map[string]other{"a": {runs: true, leads: 1}, "b": {runs: true, stale: true}}, stale: true},
		"a leader is elected after 4 s":                        {others: map[string]other{"a": {runs: true, leads: 4 * time.Second}, "b": follows}, after: 4 * time.Second},
		"one of two others runs, and needs this one":           {others: map[string]other{"a": follows, "b": {}}, after: staleRoundInterval},
		"one of two others runs, the other is gone":            {others: map[string]other{"a": follows, "b": {gone: true}}, after: 2*staleRoundTimeout + staleRoundInterval},
		"the leader answers, the other is gone":                {others: map[string]other{"a": {runs: true, leads: 1}, "b": {gone: true}}, after: 2*staleRoundTimeout + staleRoundInterval},
		"two of four others run, and need this one":            {others: map[string]other{"a": follows, "b": follows, "c": {}, "d": {}}, after: staleRoundInterval},
		"three of four others elect a leader":                  {others: map[string]other{"a": follows, "b": follows, "c": {runs: true, leads: time.Second}, "d": {}}, after: time.Second},
		"the others never agree":                               {others: map[string]other{"a": follows, "b": follows}, after: staleTimeout},
		"no other replica is known":                            {},
		"the cluster refuses it":                               {others: map[string]other{"a": {refuses: true}, "b": follows}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				stale, err := asking(x.others).run(t.Context())
				if _, refused := errors.AsType[*transport.RefusedError](err); stale != x.stale || refused != x.refused {
					t.Errorf("stale %v, %v", stale, err)
				}
				if took := time.Since(began); took != x.after {
					t.Errorf("the check took %v, want %v", took, x.after)
				}
			})
		})
	}
}
