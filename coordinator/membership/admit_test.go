package membership

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	secondInstance = "00000000000000000000000000000000"
	thirdInstance  = "11111111111111111111111111111111"
)

// ofThree makes the leader n1 with the voters n2 and n3, all of which are recorded. The
// others that run are in the network.
func ofThree(t *testing.T) (*replica, *network) {
	t.Helper()
	r := setup(t)
	r.servers = []raftnode.Server{voter("n1"), voter("n2"), voter("n3")}
	r.op(t, &fsm.Replica{ServerID: "n1", Instance: testInstance}, &fsm.Replica{ServerID: "n2", Instance: secondInstance, LowWaterMark: 100}, &fsm.Replica{ServerID: "n3", Instance: "c"})
	return r, r.network
}

func running(id, instance string) *otherReplica {
	return &otherReplica{response: &dtaskv1.IdentifyResponse{ServerId: id, Instance: instance, ClusterId: testCluster, State: "follower"}}
}

func TestAnInstanceIsAdmittedOnceForItsServerID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := ofThree(t)
		r.servers = append(r.servers, raftnode.Server{ID: "n4", Address: "n4:1"})
		n.add(t, "n4:1", running("n4", thirdInstance))
		admit := func(q *dtaskv1.AdmitRequest) (*dtaskv1.AdmitResponse, error) {
			return r.admitted(t, q)
		}
		for range 2 { // the second call is a repeat
			if got, err := admit(&dtaskv1.AdmitRequest{ServerId: "n4", Instance: thirdInstance}); err != nil || got.GetClusterId() != testCluster || got.GetServerId() != "n4" {
				t.Fatalf("got %v, %v", got, err)
			}
		}
		_, err := admit(&dtaskv1.AdmitRequest{ServerId: "n4", Instance: secondInstance})
		wantError(t, err, Refused, "--auto-rejoin")
		_, err = admit(&dtaskv1.AdmitRequest{ServerId: "n3", Instance: secondInstance, ClusterId: "another"})
		wantError(t, err, Refused, "cluster another")
		_, err = admit(&dtaskv1.AdmitRequest{Instance: secondInstance})
		wantError(t, err, Invalid, "must be")
		_, err = admit(&dtaskv1.AdmitRequest{ServerId: "n3", Instance: "short"})
		wantError(t, err, Invalid, "must be")
		_, err = admit(&dtaskv1.AdmitRequest{ServerId: "n9", Instance: thirdInstance})
		wantError(t, err, Busy, "")
		if !strings.Contains(err.Error(), "cluster add n9") {
			t.Errorf("%q does not say how to add a server", err)
		}
		r.servers = r.servers[:2]
		_, err = admit(&dtaskv1.AdmitRequest{ServerId: "n4", Instance: thirdInstance})
		wantError(t, err, Refused, "was removed")
	})
}

func TestADirectoryOlderThanItsAcknowledgedEntriesIsStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := ofThree(t)
		for _, c := range []struct {
			last, stored uint64
			stale        bool
		}{{100, 0, false}, {99, 0, true}, {150, 150, false}, {149, 150, true}} {
			r.stored = map[string]uint64{"n2": c.stored}
			got, err := r.admitted(t, &dtaskv1.AdmitRequest{ServerId: "n2", Instance: secondInstance, ClusterId: testCluster, Stored: true, LastIndex: c.last})
			if err != nil || got.GetStale() != c.stale {
				t.Errorf("%+v: got %v, %v", c, got, err)
			}
		}
	})
}

// Leadership may have just changed, and the new leader has not seen what the former one
// has.
func TestAFormerLeaderReportsAStaleDirectory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := ofThree(t)
		r.leads = false
		r.stored = map[string]uint64{"n2": 150}
		q := &dtaskv1.AdmitRequest{ServerId: "n2", Instance: secondInstance, ClusterId: testCluster, Stored: true, LastIndex: 149}
		if got, err := r.admitted(t, q); err != nil || !got.GetStale() {
			t.Errorf("got %v, %v", got, err)
		}
		for name, change := range map[string]func(*dtaskv1.AdmitRequest){
			"all entries":       func(q *dtaskv1.AdmitRequest) { q.LastIndex = 150 },
			"another directory": func(q *dtaskv1.AdmitRequest) { q.Instance = thirdInstance },
			"another cluster":   func(q *dtaskv1.AdmitRequest) { q.ClusterId = "another" },
			"an unknown server": func(q *dtaskv1.AdmitRequest) { q.ServerId = "n9" },
			"no stored state":   func(q *dtaskv1.AdmitRequest) { q.Stored = false },
		} {
			other := proto.CloneOf(q)
			change(other)
			if _, err := r.admitted(t, other); err == nil {
				t.Errorf("%s: a replica that does not lead answered", name)
			}
		}
	})
}

func TestALostReplicaRejoinsUnderANewID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := ofThree(t)
		rejoin := func(instance string) (string, error) {
			got, err := r.admitted(t, &dtaskv1.AdmitRequest{ServerId: "n2", Instance: instance, Address: "n2:1", Rejoin: true})
			return got.GetServerId(), err
		}
		r.heard = map[string]time.Time{"n2": time.Now()}
		_, err := rejoin(thirdInstance)
		wantError(t, err, Busy, "")
		time.Sleep(lostAfter)
		r.changeErr = errors.New("interrupted")
		_, err = rejoin(thirdInstance)
		wantError(t, err, Busy, "")
		r.changeErr = nil
		for range 2 { // it continues after the interruption; then a repeat
			if id, err := rejoin(thirdInstance); err != nil || id != "n2-1" {
				t.Fatalf("got %s, %v", id, err)
			}
		}
		if want := []string{"remove n2", "add n2-1"}; !slices.Equal(r.changes, want) {
			t.Errorf("changes of the members: %q, want %q", r.changes, want)
		}
		again := strings.Repeat("2", 32)
		if id, err := rejoin(again); err != nil || id != "n2-2" { // lost again, before its promotion
			t.Errorf("got %s, %v", id, err)
		}
		r.servers[len(r.servers)-1].Voter = true
		n.add(t, "n2:1", running("n2-2", again))
		time.Sleep(5 * time.Second) // until the connection is retried
		_, err = rejoin(strings.Repeat("3", 32))
		wantError(t, err, Refused, "n2-2 runs at n2:1")
		_, err = r.admitted(t, &dtaskv1.AdmitRequest{ServerId: "n7", Instance: strings.Repeat("4", 32), Address: "n7:1", Rejoin: true})
		wantError(t, err, Refused, "not a member")
		_, err = r.admitted(t, &dtaskv1.AdmitRequest{ServerId: "n3", Instance: strings.Repeat("5", 32), Rejoin: true})
		wantError(t, err, Invalid, "must be")
	})
}

func TestOtherChangesOfTheMembersWaitUntilTwoHaveCaughtUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := ofThree(t)
		n.add(t, "n4:1", &otherReplica{response: &dtaskv1.IdentifyResponse{ServerId: "n4", Instance: thirdInstance, Empty: true}})
		n.add(t, "n5:1", &otherReplica{response: &dtaskv1.IdentifyResponse{ServerId: "n5", Instance: "5", Empty: true}})
		n.add(t, "n6:1", &otherReplica{response: &dtaskv1.IdentifyResponse{ServerId: "n6", Instance: "6"}})
		n.add(t, "n7:1", &otherReplica{response: &dtaskv1.IdentifyResponse{ServerId: "n7", Instance: "7", Empty: true, ClusterId: "another"}})
		add := func(id, address string) (*dtaskv1.AddMemberResponse, error) {
			return r.AddMember(t.Context(), &dtaskv1.AddMemberRequest{ServerId: id, Address: address})
		}
		for id, why := range map[string]string{"n6": "not empty", "n7": "cluster another", "n8": "no answer from", "n5": "server at n4:1 is n4"} {
			address := id + ":1"
			if id == "n5" {
				address = "n4:1"
			}
			_, err := add(id, address)
			wantError(t, err, Refused, why)
		}
		_, err := add("n8", "n3:1")
		wantError(t, err, Refused, "address of server n3")
		_, err = add("n2", "n9:1")
		wantError(t, err, Conflict, "already a member")
		_, err = add("n8", "")
		wantError(t, err, Invalid, "must be")
		for range 2 {
			if got, err := add("n4", "n4:1"); err != nil || got.GetVoter() {
				t.Fatalf("got %v, %v", got, err)
			}
		}
		if got, err := add("n5", "n5:1"); err != nil || got.GetVoter() {
			t.Fatalf("got %v, %v", got, err)
		}
		n.add(t, "n10:1", &otherReplica{response: &dtaskv1.IdentifyResponse{ServerId: "n10", Instance: "10", Empty: true}})
		_, err = add("n10", "n10:1")
		wantError(t, err, Busy, "n4, n5")
		_, err = r.RemoveMember(t.Context(), &dtaskv1.RemoveMemberRequest{ServerId: "n3"})
		wantError(t, err, Busy, "n4, n5")
		if _, err := r.RemoveMember(t.Context(), &dtaskv1.RemoveMemberRequest{ServerId: "n5"}); err != nil {
			t.Errorf("a non-voter is not removed beside another one: %v", err)
		}
		r.servers[3].Voter = true
		if got, err := add("n4", "n4:1"); err != nil || !got.GetVoter() {
			t.Errorf("got %v, %v", got, err)
		}
		r.op(t, &fsm.Replica{ServerID: "n9", Instance: "9"}) // recorded and not a member: removed
		_, err = add("n9", "n9:1")
		wantError(t, err, Refused, "was removed")
	})
}

// The calls overlap: the second one waits for its turn, and is not refused.
func TestMembersThatAreAddedAtTheSameTimeAreAddedInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := ofThree(t)
		end, err := r.beginChange(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for _, id := range []string{"n4", "n5"} {
			n.add(t, id+":1", &otherReplica{response: &dtaskv1.IdentifyResponse{ServerId: id, Instance: id, Empty: true}})
			group.Go(func() {
				if _, err := r.AddMember(t.Context(), &dtaskv1.AddMemberRequest{ServerId: id, Address: id + ":1"}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if len(r.changes) > 0 {
			t.Errorf("%q during another change", r.changes)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = r.beginChange(ended)
		wantError(t, err, Busy, "another change")
		end()
		group.Wait()
		slices.Sort(r.changes)
		if want := []string{"add n4", "add n5"}; !slices.Equal(r.changes, want) {
			t.Errorf("changes: %q, want %q", r.changes, want)
		}
	})
}

func TestAVoterNeededForAMajorityIsNotRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := ofThree(t)
		remove := func(id string) (*dtaskv1.RemoveMemberResponse, error) {
			return r.RemoveMember(t.Context(), &dtaskv1.RemoveMemberRequest{ServerId: id})
		}
		_, err := remove("n2")
		wantError(t, err, Refused, "only 1 of 2 voters") // n3 is down
		n.add(t, "n3:1", running("n3", "c"))
		time.Sleep(5 * time.Second) // until the connection is retried
		_, err = remove("n8")
		wantError(t, err, NotFound, "not found")
		for _, already := range []bool{false, true} {
			if got, err := remove("n2"); err != nil || got.GetAlreadyRemoved() != already {
				t.Errorf("got %v, %v; want already %v", got, err, already)
			}
		}
		r.servers = []raftnode.Server{voter("n1"), voter("n3"), {ID: "n4", Address: "n3:1"}}
		_, err = remove("n3") // the non-voter must catch up first
		wantError(t, err, Busy, "")
		if _, err := remove("n4"); err != nil { // a non-voter counts for no majority
			t.Error(err)
		}
		_, err = remove("n1") // the leader: the next one removes it
		wantError(t, err, NotLeader, "")
		if want := []string{"remove n2", "remove n4", "transfer"}; !slices.Equal(r.changes, want) {
			t.Errorf("changes: %q, want %q", r.changes, want)
		}
		r.servers = r.servers[:1]
		_, err = remove("n1")
		wantError(t, err, Refused, "last voter")
	})
}

func TestLeadershipIsTransferredToVotersOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := ofThree(t)
		r.servers[2].Voter = false
		transfer := func(id string) error {
			_, err := r.TransferLeadership(t.Context(), &dtaskv1.TransferLeadershipRequest{ServerId: id})
			return err
		}
		for _, id := range []string{"", "n2", "n1"} {
			if err := transfer(id); err != nil {
				t.Errorf("to %q: %v", id, err)
			}
		}
		wantError(t, transfer("n3"), Refused, "not a voter")
		wantError(t, transfer("n9"), NotFound, "not found")
		r.servers = r.servers[:1]
		wantError(t, transfer(""), Refused, "no other voter")
		r.changeErr = errors.New("no")
		r.servers = []raftnode.Server{voter("n1"), voter("n2")}
		wantError(t, transfer("n2"), Refused, "not transferred")
		if want := []string{"transfer", "transfer to n2"}; !slices.Equal(r.changes, want) {
			t.Errorf("changes: %q, want %q", r.changes, want)
		}
		r.recordErr = &sequencer.RejectedError{Reason: fsm.WrongState} // another instance was recorded first
		_, err := r.admitted(t, &dtaskv1.AdmitRequest{ServerId: "n8", Instance: thirdInstance, Address: "n8:1", Rejoin: true})
		wantError(t, err, Refused, "not a member")
	})
}

// It has just called, so it is slow, and asks again: it would exit if it was refused.
func TestACoordinatorThatJoinedAndAnswersLateIsAddedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := ofThree(t)
		r.joinedAs(t, "n4")
		q := &dtaskv1.AdmitRequest{ServerId: "n4", Instance: thirdInstance, Address: "n4:1", MaxLevel: uint32(fsm.MaxLevel)}
		joiner := &otherReplica{response: &dtaskv1.IdentifyResponse{ServerId: "n4", Instance: thirdInstance, Empty: true, MaxLevel: uint32(fsm.MaxLevel)}}
		joiner.late.Store(1)
		n.add(t, "n4:1", joiner)
		_, err := r.admitted(t, q)
		wantError(t, err, Busy, "server n4 does not answer in time at its address n4:1")
		// The second question is that of AddMember.
		joiner.late.Store(2)
		joiner.asked.Store(0)
		_, err = r.admitted(t, q)
		wantError(t, err, Busy, "does not answer in time")
		joiner.late.Store(0)
		_, err = r.admitted(t, q)
		wantError(t, err, Busy, "is being added")
		if want := []string{"add n4"}; !slices.Equal(r.changes, want) {
			t.Errorf("changes of the members: %q, want %q", r.changes, want)
		}
	})
}

// An address that is wrong is an error that the operator sees.
func TestACoordinatorThatJoinedWithAWrongAddressIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := ofThree(t)
		r.joinedAs(t, "n4")
		n.refuse("n4:1")
		_, err := r.admitted(t, &dtaskv1.AdmitRequest{ServerId: "n4", Instance: thirdInstance, Address: "n4:1", MaxLevel: uint32(fsm.MaxLevel)})
		wantError(t, err, Refused, "no answer from n4:1")
	})
}
