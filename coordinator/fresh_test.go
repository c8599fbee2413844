package coordinator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/transport"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// other is a replica that is asked.
type other struct {
	runs     bool          // Raft runs
	leads    time.Duration // from then on; 0: never
	outdated bool          // it has seen more than the folder holds
	refuses  bool
	gone     bool // nothing answers, and nothing says so
}

// asking asks others by number.
func asking(others map[string]other) freshness {
	began := time.Now()
	f := freshness{
		ask: func(ctx context.Context, address string) (*dtaskv1.AdmitResponse, error) {
			o := others[address]
			switch {
			case o.gone:
				<-ctx.Done()
				return nil, ctx.Err()
			case o.refuses:
				return nil, &transport.RefusedError{ServerID: "n1", Reason: "it was removed"}
			case o.runs && (o.outdated || o.leads > 0 && time.Since(began) >= o.leads):
				return &dtaskv1.AdmitResponse{Stale: o.outdated}, nil
			}
			return nil, errors.New("this replica is not the leader")
		},
		runs: func(ctx context.Context, address string) bool {
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

func TestAFolderIsJudgedByWhoeverHasSeenMore(t *testing.T) {
	t.Parallel()
	follows := other{runs: true}
	for name, x := range map[string]struct {
		others   map[string]other
		outdated bool
		refused  bool
		after    time.Duration
	}{
		"the leader misses nothing":                        {others: map[string]other{"a": {runs: true, leads: 1}, "b": follows}, after: freshPause},
		"the leader misses something":                      {others: map[string]other{"a": {runs: true, outdated: true}, "b": follows}, outdated: true},
		"who led before misses something, the leader none": {others: map[string]other{"a": {runs: true, leads: 1}, "b": {runs: true, outdated: true}}, outdated: true},
		"a leader is elected only after a while":           {others: map[string]other{"a": {runs: true, leads: 4 * time.Second}, "b": follows}, after: 4 * time.Second},
		"one of two others runs, and needs this one":       {others: map[string]other{"a": follows, "b": {}}, after: freshPause},
		"one of two others runs, the other is gone":        {others: map[string]other{"a": follows, "b": {gone: true}}, after: 2*freshRound + freshPause},
		"the leader answers, the other is gone":            {others: map[string]other{"a": {runs: true, leads: 1}, "b": {gone: true}}, after: 2*freshRound + freshPause},
		"two of four others run, and need this one":        {others: map[string]other{"a": follows, "b": follows, "c": {}, "d": {}}, after: freshPause},
		"three of four others elect a leader":              {others: map[string]other{"a": follows, "b": follows, "c": {runs: true, leads: time.Second}, "d": {}}, after: time.Second},
		"the others never agree":                           {others: map[string]other{"a": follows, "b": follows}, after: freshLimit},
		"nobody else is known":                             {},
		"the cluster refuses it":                           {others: map[string]other{"a": {refuses: true}, "b": follows}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				outdated, err := asking(x.others).outdated(t.Context())
				var fatal *FatalError
				if outdated != x.outdated || errors.As(err, &fatal) != x.refused {
					t.Errorf("outdated %v, %v", outdated, err)
				}
				if took := time.Since(began); took != x.after {
					t.Errorf("it took %v, want %v", took, x.after)
				}
			})
		})
	}
}
