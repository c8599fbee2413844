package membership

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/raftnode"
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

	starts   time.Duration // it answers after this time; 0 = never, unless it runs
	raft     time.Duration // and Raft runs after this time; 0 = never
	last     uint64        // the last entry of its log
	staysOut bool
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
		identify: func(ctx context.Context, address string) *dtaskv1.IdentifyResponse {
			o, up := others[address], time.Since(started)
			if o.gone {
				<-ctx.Done()
			}
			if !o.runs && (o.starts == 0 || up < o.starts) {
				return nil
			}
			a := &dtaskv1.IdentifyResponse{LastIndex: o.last}
			if o.runs || o.raft > 0 && up >= o.raft {
				a.Term = 1
			}
			if o.staysOut {
				a.Alarms = []*dtaskv1.Alarm{{Kind: AlarmHistoryConflict}}
			}
			return a
		},
	}
	for address := range others {
		f.members = append(f.members, address)
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
		"the leader answers, the other is gone":                {others: map[string]other{"a": {runs: true, leads: 1}, "b": {gone: true}}, after: staleRoundTimeout + staleRoundInterval + confirmedGrace},
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
				stale, _, err := asking(x.others).run(t.Context())
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

// After a crash the check waits for all others, because the one that is missing may be
// the only one that has the latest entries.
func TestADirectoryIsAcceptedAfterACrashWhenAllOthersHaveAnswered(t *testing.T) {
	t.Parallel()
	up := other{starts: 1}
	for name, x := range map[string]struct {
		others  map[string]other
		missing []string
		after   time.Duration
	}{
		"all start together":                      {others: map[string]other{"a": up, "b": up}, after: staleRoundInterval},
		"one runs already":                        {others: map[string]other{"a": up, "b": {runs: true}}, after: staleRoundInterval},
		"one starts after 2 s":                    {others: map[string]other{"a": up, "b": {starts: 2 * time.Second}}, after: 2 * time.Second},
		"one does not start":                      {others: map[string]other{"a": up, "b": {}}, missing: []string{"b"}, after: verifyTimeout},
		"none starts":                             {others: map[string]other{"a": {}, "b": {}}, missing: []string{"a", "b"}, after: verifyTimeout},
		"one has vanished":                        {others: map[string]other{"a": up, "b": {gone: true}}, missing: []string{"b"}, after: verifyTimeout},
		"the others never elect a leader":         {others: map[string]other{"a": {runs: true}, "b": {runs: true}, "c": {runs: true}, "d": {}}, missing: []string{"d"}, after: staleTimeout + verifyTimeout},
		"one with a longer log runs after 1 s":    {others: map[string]other{"a": up, "b": {starts: 1, raft: time.Second, last: 11}}, after: time.Second},
		"one with a longer log does not run":      {others: map[string]other{"a": up, "b": {starts: 1, last: 11}}, missing: []string{"b"}, after: verifyTimeout},
		"one with a longer log stays out":         {others: map[string]other{"a": up, "b": {starts: 1, last: 11, staysOut: true}}, after: staleRoundInterval},
		"a leader answers, and another one never": {others: map[string]other{"a": {runs: true, leads: 1}, "b": {}}, after: staleRoundInterval},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				check := asking(x.others)
				check.last, check.wait = 10, verifyTimeout
				stale, missing, err := check.run(t.Context())
				if stale || err != nil || !slices.Equal(missing, x.missing) {
					t.Errorf("stale %v, missing %v, %v; want missing %v", stale, missing, err, x.missing)
				}
				if took := time.Since(began); took != x.after {
					t.Errorf("the check took %v, want %v", took, x.after)
				}
			})
		})
	}
}

// --peers may name a replica that was removed, and lack one that was added.
func TestADirectoryIsVerifiedByTheMembersThatItKnows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		check := asking(map[string]other{"a": {starts: 1}, "b": {starts: 1}})
		check.others, check.last, check.wait = []string{"removed"}, 10, verifyTimeout
		began := time.Now()
		stale, missing, err := check.run(t.Context())
		if stale || err != nil || len(missing) > 0 || time.Since(began) != staleRoundInterval {
			t.Errorf("stale %v, missing %v, %v after %v; want nothing after one round", stale, missing, err, time.Since(began))
		}
	})
	dir, err := datadir.Open(t.TempDir(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	c := Candidate{
		Dir: dir, Advertise: "a:1", Members: func() []raftnode.Server { return nil },
		Configured: []raftnode.Server{{ID: "n1", Address: "a:1"}, {ID: "n2", Address: "b:2"}, {ID: "n3", Address: "c:1"}},
	}
	if got := c.members(); !slices.Equal(got, []string{"b:2", "c:1"}) {
		t.Errorf("without a known configuration: got %v, want --peers", got)
	}
	if err := dir.SetOthers(nil, map[string]string{"n2": "b:1", "n4": "d:1"}); err != nil {
		t.Fatal(err)
	}
	if got := c.members(); !slices.Equal(got, []string{"b:2", "d:1"}) {
		t.Errorf("got %v, want n2 at its new address and n4, without n3, which was removed", got)
	}
}
