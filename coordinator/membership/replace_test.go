package membership

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// joinedAs makes the identity that a coordinator has once it used a join string.
func (r *replica) joinedAs(t *testing.T, ids ...string) {
	t.Helper()
	r.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	for _, id := range ids {
		hash := [32]byte{}
		copy(hash[:], id)
		r.op(t, &fsm.CreateIdentity{Name: id, Grant: fsm.Grant{Role: fsm.RoleReplica}, Credential: fsm.Credential{Kind: fsm.KeyCredential, Hash: hash}, CreatedMS: r.nowMS})
	}
}

func replacing(id, instance, old string) *dtaskv1.AdmitRequest {
	return &dtaskv1.AdmitRequest{ServerId: id, Instance: instance, Address: id + ":1", Replaces: old, MaxLevel: uint32(fsm.MaxLevel)}
}

// The leader of each step may be another one: all that is known is in the state and in the
// configuration.
func TestALostMemberIsReplacedOnAnotherMachine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := ofThree(t)
		n.add(t, "n3:1", running("n3", "c"))
		r.joinedAs(t, "n2", "n4", "n5")
		r.heard = map[string]time.Time{"n2": time.Now()}
		wantError(t, r.CheckReplace(t.Context(), "n2"), Busy, "may still run")
		time.Sleep(lostAfter) // virtual time
		if err := r.CheckReplace(t.Context(), "n2"); err != nil {
			t.Fatal(err)
		}
		r.changeErr = errors.New("interrupted")
		_, err := r.admitted(t, replacing("n4", thirdInstance, "n2"))
		wantError(t, err, Busy, "interrupted")
		r.changeErr = nil
		for range 2 { // it continues after the interruption; then a repeat
			if got, err := r.admitted(t, replacing("n4", thirdInstance, "n2")); err != nil || got.GetServerId() != "n4" {
				t.Fatalf("got %v, %v", got, err)
			}
		}
		if want := []string{"remove n2", "add n4"}; !slices.Equal(r.changes, want) {
			t.Errorf("changes of the members: %q, want %q", r.changes, want)
		}
		_, err = r.admitted(t, replacing("n5", strings.Repeat("5", 32), "n2"))
		wantError(t, err, Refused, "already replaced by n4")
		_, err = r.admitted(t, &dtaskv1.AdmitRequest{ServerId: "n2", Instance: secondInstance, Address: "n2:1", MaxLevel: uint32(fsm.MaxLevel)})
		wantError(t, err, Refused, "was removed")
		// n4 is another machine: n2 without its data directory has no claim to its place.
		_, err = r.admitted(t, &dtaskv1.AdmitRequest{ServerId: "n2", Instance: strings.Repeat("6", 32), Address: "n2:1", Rejoin: true, MaxLevel: uint32(fsm.MaxLevel)})
		wantError(t, err, Refused, "cannot rejoin")
	})
}

func TestAMemberThatReturnedDuringItsReplacementStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := ofThree(t)
		n.add(t, "n3:1", running("n3", "c"))
		r.joinedAs(t, "n4")
		r.changeErr = errors.New("interrupted")
		_, err := r.admitted(t, replacing("n4", thirdInstance, "n2"))
		wantError(t, err, Busy, "interrupted")
		r.changeErr = nil
		n.add(t, "n2:1", running("n2", secondInstance))
		time.Sleep(5 * time.Second) // virtual time: until the connection is retried
		_, err = r.admitted(t, replacing("n4", thirdInstance, "n2"))
		wantError(t, err, Refused, "n2 runs at n2:1")
		if len(r.changes) != 0 {
			t.Errorf("changes of the members: %q", r.changes)
		}
	})
}

// Two machines begin to take the same place, one after another, and are interrupted. The first
// one that continues gets it.
func TestOneOfTwoReplacementsGetsThePlace(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"n4", "n5"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, n := ofThree(t)
				n.add(t, "n3:1", running("n3", "c"))
				r.joinedAs(t, "n4", "n5")
				asks := map[string]*dtaskv1.AdmitRequest{"n4": replacing("n4", thirdInstance, "n2"), "n5": replacing("n5", strings.Repeat("5", 32), "n2")}
				r.changeErr = errors.New("interrupted")
				for _, id := range []string{"n4", "n5"} {
					_, err := r.admitted(t, asks[id])
					wantError(t, err, Busy, "interrupted")
				}
				r.changeErr = nil
				// One of them has removed it.
				r.servers = slices.DeleteFunc(r.servers, func(m raftnode.Server) bool { return m.ID == "n2" })
				for range 2 { // the second call is a repeat
					if _, err := r.admitted(t, asks[first]); err != nil {
						t.Fatal(err)
					}
				}
				r.servers[2].Voter = true
				delete(asks, first)
				for _, ask := range asks {
					_, err := r.admitted(t, ask)
					wantError(t, err, Refused, "already replaced by "+first)
				}
			})
		})
	}
}

func TestAMemberIsReplacedOnlyIfItIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := ofThree(t)
		r.joinedAs(t, "n4")
		wantError(t, r.CheckReplace(t.Context(), "n2"), Refused, "not a majority")
		n.add(t, "n3:1", running("n3", "c"))
		time.Sleep(5 * time.Second) // virtual time: until the connection is retried
		wantError(t, r.CheckReplace(t.Context(), "n1"), Refused, "n1 runs at n1:1")
		wantError(t, r.CheckReplace(t.Context(), "n3"), Refused, "n3 runs at n3:1")
		wantError(t, r.CheckReplace(t.Context(), "n9"), Refused, "not a member")
		_, err := r.admitted(t, replacing("n4", thirdInstance, "n4"))
		wantError(t, err, Invalid, "itself")
		_, err = r.admitted(t, replacing("n5", thirdInstance, "n2"))
		wantError(t, err, Refused, "join string")
		_, err = r.admitted(t, replacing("n4", thirdInstance, "n3"))
		wantError(t, err, Refused, "n3 runs at n3:1")
		if len(r.changes) != 0 {
			t.Errorf("changes of the members: %q", r.changes)
		}
	})
}

// A replacement asks for its place until it has a log. Once it was removed it must not get
// that place again, whether it was a member yet or not.
func TestARemovedReplacementIsNotAddedAgain(t *testing.T) {
	t.Parallel()
	rejoining := &dtaskv1.AdmitRequest{ServerId: "n2", Instance: thirdInstance, Address: "n2:1", Rejoin: true, MaxLevel: uint32(fsm.MaxLevel)}
	for name, c := range map[string]struct {
		id  string
		ask *dtaskv1.AdmitRequest
	}{"on another machine": {"n4", replacing("n4", thirdInstance, "n2")}, "without its data directory": {"n2-1", rejoining}} {
		for _, added := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, added %v", name, added), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r, n := ofThree(t)
					n.add(t, "n3:1", running("n3", "c"))
					r.joinedAs(t, "n4")
					var want []string
					if added {
						want = []string{"remove n2", "add " + c.id, "remove " + c.id}
					} else {
						r.changeErr = errors.New("interrupted")
					}
					if _, err := r.admitted(t, c.ask); (err == nil) != added {
						t.Fatal(err)
					}
					r.changeErr = nil
					for _, already := range []bool{false, true} {
						got, err := r.RemoveMember(t.Context(), &dtaskv1.RemoveMemberRequest{ServerId: c.id})
						if err != nil || got.GetAlreadyRemoved() != already {
							t.Errorf("got %v, %v; want already %v", got, err, already)
						}
					}
					_, err := r.admitted(t, c.ask)
					wantError(t, err, Refused, c.id+" was removed")
					// It may have Raft's state, but no log.
					q := &dtaskv1.AdmitRequest{ServerId: c.id, Instance: thirdInstance, ClusterId: testCluster, Stored: true, MaxLevel: uint32(fsm.MaxLevel)}
					_, err = r.admitted(t, q)
					wantError(t, err, Refused, c.id+" was removed")
					if !slices.Equal(r.changes, want) {
						t.Errorf("changes of the members: %q, want %q", r.changes, want)
					}
				})
			})
		}
	}
}

// A removal that fails leaves a member: it keeps its place.
func TestAReplacementWhoseRemovalFailedIsStillAMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := ofThree(t)
		n.add(t, "n3:1", running("n3", "c"))
		r.joinedAs(t, "n4")
		if _, err := r.admitted(t, replacing("n4", thirdInstance, "n2")); err != nil {
			t.Fatal(err)
		}
		r.changeErr = errors.New("interrupted")
		_, err := r.RemoveMember(t.Context(), &dtaskv1.RemoveMemberRequest{ServerId: "n4"})
		wantError(t, err, Busy, "interrupted")
		r.changeErr = nil
		if _, err := r.admitted(t, replacing("n4", thirdInstance, "n2")); err != nil {
			t.Error(err)
		}
	})
}
