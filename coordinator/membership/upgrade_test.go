package membership

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// upgrading is the leader n1 of a build that supports level 2, with the voter n2 and the
// non-voter n3, which run the previous version.
func upgrading(t *testing.T) *replica {
	t.Helper()
	r := setup(t)
	r.machine.SupportLevel(2)
	r.servers = []raftnode.Server{voter("n1"), voter("n2"), {ID: "n3", Address: "n3:1"}}
	r.starts(t, "n2", 1, "u")
	r.starts(t, "n3", 1, "u")
	return r
}

// starts starts another member with a build. Version "v" is the leader's.
func (r *replica) starts(t *testing.T, id string, level uint32, version string) {
	t.Helper()
	r.network.add(t, id+":1", &otherReplica{response: &dtaskv1.IdentifyResponse{
		ServerId: id, State: memberFollower, ClusterId: testCluster, MinLevel: 1, MaxLevel: level, Version: version,
	}})
}

// restarts replaces another member by one of a build.
func (r *replica) restarts(t *testing.T, id string, level uint32, version string) {
	t.Helper()
	r.stops(id)
	r.starts(t, id, level, version)
}

// stops makes a member unreachable.
func (r *replica) stops(id string) {
	address := id + ":1"
	r.network.mu.Lock()
	delete(r.network.listeners, address)
	r.network.mu.Unlock()
	r.cfg.Peers.retain(nil)
}

// upgradeStatus returns the status in one line.
func (r *replica) upgradeStatus(t *testing.T) string {
	t.Helper()
	s, err := r.UpgradeStatus(t.Context(), &dtaskv1.UpgradeStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("level %d held %v %s supported %d in %v next %q", s.GetLevel(), s.GetHeld(), s.GetState(), s.GetSupported(),
		(time.Duration(s.GetRaiseInMs()) * time.Millisecond).Round(time.Minute), s.GetNext())
}

func (r *replica) wantUpgrade(t *testing.T, want string) {
	t.Helper()
	if got := r.upgradeStatus(t); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTheLevelIsRaisedAfterAllMembersHaveSupportedItForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := upgrading(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- (&Upgrader{Service: r.Service}).Run(ctx, 1) }()
		defer func() {
			stop()
			<-ended
		}()
		after := func(d time.Duration) {
			time.Sleep(d) // virtual
			synctest.Wait()
		}
		after(2 * time.Hour)
		r.wantUpgrade(t, `level 1 held false mixed supported 1 in 0s next "n2"`)
		r.restarts(t, "n2", 2, "v")
		r.wantUpgrade(t, `level 1 held false mixed supported 1 in 0s next "n3"`)
		r.restarts(t, "n3", 2, "v")
		after(30 * time.Minute)
		r.wantUpgrade(t, `level 1 held false ready supported 2 in 30m0s next ""`)
		r.restarts(t, "n3", 1, "u") // the time starts again
		after(time.Minute)
		r.restarts(t, "n3", 2, "v")
		after(59 * time.Minute)
		r.wantUpgrade(t, `level 1 held false ready supported 2 in 1m0s next ""`)
		after(2 * time.Minute)
		r.wantUpgrade(t, `level 2 held false complete supported 2 in 0s next "n2"`)
	})
}

func TestAHeldUpgradeWaitsForTheOperator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // a member has a second to answer
		r := upgrading(t)
		hold := func(release bool) (*dtaskv1.HoldUpgradeResponse, error) {
			return r.HoldUpgrade(t.Context(), &dtaskv1.HoldUpgradeRequest{Release: release})
		}
		for range 2 { // the second one changes nothing
			if got, err := hold(false); err != nil || got.GetLevel() != 1 {
				t.Fatalf("hold: got %v, %v", got, err)
			}
		}
		r.restarts(t, "n2", 2, "v")
		_, err := r.FinishUpgrade(t.Context(), &dtaskv1.FinishUpgradeRequest{})
		wantError(t, err, Refused, "server n3 runs dtask u, which supports feature levels up to 1: upgrade it first")
		r.restarts(t, "n3", 2, "v")
		r.cfg.UpgradeAfter = 0
		u := &Upgrader{Service: r.Service}
		u.pass(t.Context(), r, r)
		r.wantUpgrade(t, `level 1 held true ready supported 2 in 0s next ""`)
		if got, err := hold(true); err != nil || got.GetAlready() {
			t.Fatalf("release: got %v, %v", got, err)
		}
		if got, err := hold(true); err != nil || !got.GetAlready() {
			t.Fatalf("release again: got %v, %v", got, err)
		}
		u.pass(t.Context(), r, r)
		r.wantUpgrade(t, `level 2 held false complete supported 2 in 0s next "n2"`)
	})
}

func TestAnUpgradeIsFinishedByTheOperator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // a member has a second to answer
		r := upgrading(t)
		r.restarts(t, "n2", 2, "v")
		r.restarts(t, "n3", 2, "v")
		r.op(t, &fsm.SetLevel{Level: 1, Held: true})
		for already := range 2 {
			got, err := r.FinishUpgrade(t.Context(), &dtaskv1.FinishUpgradeRequest{})
			if err != nil || got.GetLevel() != 2 || got.GetAlready() != (already == 1) {
				t.Errorf("finish %d: got %v, %v", already, got, err)
			}
		}
		r.wantUpgrade(t, `level 2 held false complete supported 2 in 0s next "n2"`)
	})
}

// Its build may be older: the level would keep it out.
func TestAnUpgradeIsNotFinishedWithoutAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := upgrading(t)
		r.restarts(t, "n2", 2, "v")
		r.stops("n3")
		_, err := r.FinishUpgrade(t.Context(), &dtaskv1.FinishUpgradeRequest{})
		wantError(t, err, Refused, "server n3 does not answer")
		r.wantUpgrade(t, `level 1 held false mixed supported 0 in 0s next "n3"`)
		r.cfg.UpgradeAfter, r.founded = 0, true
		(&Upgrader{Service: r.Service}).pass(t.Context(), r, r)
		if level, _ := r.level(); level != 1 {
			t.Errorf("the level is %d while a member does not answer", level)
		}
	})
}

// It would halt at the operation.
func TestNothingIsHeldWithAMemberThatKnowsNoLevels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // a member has a second to answer
		r := upgrading(t)
		r.restarts(t, "n3", 0, "older")
		_, err := r.HoldUpgrade(t.Context(), &dtaskv1.HoldUpgradeRequest{})
		wantError(t, err, Refused, "server n3 does not answer, or runs a version without feature levels")
		if r.wantUpgrade(t, `level 1 held false mixed supported 1 in 0s next "n2"`); r.machine.Index() != 2 {
			t.Error("a refused request changed the state")
		}
	})
}

func TestANewClusterStartsAtTheLevelThatAllFoundersSupport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // a member has a second to answer
		r := upgrading(t)
		r.founded = true
		u := &Upgrader{Service: r.Service}
		u.pass(t.Context(), r, r)
		r.wantUpgrade(t, `level 1 held false mixed supported 1 in 0s next "n2"`)
		r.restarts(t, "n2", 2, "v")
		r.restarts(t, "n3", 2, "v")
		u.pass(t.Context(), r, r)
		r.wantUpgrade(t, `level 2 held false complete supported 2 in 0s next "n2"`)
	})
}

func TestTheLeaderIsUpgradedLast(t *testing.T) {
	t.Parallel()
	build := func(level uint32, version string) *dtaskv1.IdentifyResponse {
		return &dtaskv1.IdentifyResponse{MaxLevel: level, Version: version}
	}
	a, b, c := build(1, "v0.1.9"), build(1, "v0.1.10"), build(2, "v0.2.0")
	servers := []raftnode.Server{voter("n1"), voter("n2"), voter("n3")} // n1 leads
	for name, x := range map[string]struct {
		answers []*dtaskv1.IdentifyResponse
		want    string
	}{
		"before the first":           {[]*dtaskv1.IdentifyResponse{a, a, a}, "n2"},
		"after the first":            {[]*dtaskv1.IdentifyResponse{a, b, a}, "n3"},
		"before the leader":          {[]*dtaskv1.IdentifyResponse{a, b, b}, "n1"},
		"the leader was first":       {[]*dtaskv1.IdentifyResponse{c, a, a}, "n2"},
		"one does not answer":        {[]*dtaskv1.IdentifyResponse{a, b, nil}, "n3"},
		"a level counts, not a name": {[]*dtaskv1.IdentifyResponse{c, build(1, "v9"), c}, "n2"},
	} {
		if got := nextToUpgrade(servers, x.answers, "n1"); got != x.want {
			t.Errorf("%s: got %q, want %q", name, got, x.want)
		}
	}
}

func TestVersionsAreComparedByTheirNumbers(t *testing.T) {
	t.Parallel()
	ordered := []string{"", "dev", "v0.1.9", "v0.1.10", "v0.1.10-2-gabc", "v0.2.0", "v1.0.0", "v01.0.1"}
	for i, a := range ordered {
		for k, b := range ordered {
			want := 0
			if i < k {
				want = -1
			} else if i > k {
				want = 1
			}
			if got := compareVersions(a, b); got != want {
				t.Errorf("%q and %q: got %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestAReplicaOutsideTheLevelOfTheClusterIsNotAdmitted(t *testing.T) {
	t.Parallel()
	r := upgrading(t)
	r.op(t, &fsm.Replica{ServerID: "n2", Instance: testInstance}, &fsm.SetLevel{Level: 2})
	ask := func(low, high uint32) error {
		_, err := r.admitted(t, &dtaskv1.AdmitRequest{
			ServerId: "n2", Instance: testInstance, ClusterId: testCluster, MinLevel: low, MaxLevel: high, Version: "v0.1.0",
		})
		return err
	}
	wantError(t, ask(1, 1), Refused, "server n2 runs dtask v0.1.0, which supports feature levels up to 1, and the cluster is at level 2")
	wantError(t, ask(0, 0), Refused, "supports feature levels up to 1")
	wantError(t, ask(3, 4), Refused, "requires feature level 3, and the cluster is at level 2")
	if err := ask(1, 2); err != nil {
		t.Errorf("a replica that supports the level: %v", err)
	}
}
