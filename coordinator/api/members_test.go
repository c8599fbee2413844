package api

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	otherInst = "00000000000000000000000000000000"
	thirdInst = "11111111111111111111111111111111"
)

// ofThree is a leader n1 with the voters n2 and n3, which are recorded; those of the
// others that run are in the network.
func ofThree(t *testing.T) (*replica, *network) {
	t.Helper()
	n := &network{listeners: make(map[string]*bufconn.Listener)}
	r := setup(t, func(c *Config) { c.Peers = NewPeers(grpc.WithContextDialer(n.dial)) })
	t.Cleanup(func() {
		if err := r.peers.Close(); err != nil {
			t.Error(err)
		}
	})
	r.members = []Member{{"n1", "n1:1", true}, {"n2", "n2:1", true}, {"n3", "n3:1", true}}
	r.leader.op(t, &fsm.Replica{ServerID: "n1", Instance: testInstance}, &fsm.Replica{ServerID: "n2", Instance: otherInst, LowWaterMark: 100}, &fsm.Replica{ServerID: "n3", Instance: "c"})
	return r, n
}

func running(id, instance string) *otherReplica {
	return &otherReplica{says: &dtaskv1.IdentifyResponse{ServerId: id, Instance: instance, ClusterId: testCluster, State: "follower"}}
}

// wantRefusal checks that an answer is a refusal that says why.
func wantRefusal(t *testing.T, err error, why string) {
	t.Helper()
	wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	if err != nil && !strings.Contains(err.Error(), why) {
		t.Errorf("the refusal %q does not say %q", err, why)
	}
}

func TestAnInstanceIsAdmittedOnceForItsServerID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := ofThree(t)
		r.members = append(r.members, Member{"n4", "n4:1", false})
		n.add(t, "n4:1", running("n4", thirdInst))
		admit := func(q *dtaskv1.AdmitRequest) (*dtaskv1.AdmitResponse, error) {
			return r.cluster.Admit(t.Context(), q)
		}
		for range 2 { // the second is a repeat
			if got, err := admit(&dtaskv1.AdmitRequest{ServerId: "n4", Instance: thirdInst}); err != nil || got.GetClusterId() != testCluster || got.GetServerId() != "n4" {
				t.Fatalf("got %v, %v", got, err)
			}
		}
		_, err := admit(&dtaskv1.AdmitRequest{ServerId: "n4", Instance: otherInst})
		wantRefusal(t, err, "--auto-rejoin")
		_, err = admit(&dtaskv1.AdmitRequest{ServerId: "n3", Instance: otherInst, ClusterId: "another"})
		wantRefusal(t, err, "cluster another")
		_, err = admit(&dtaskv1.AdmitRequest{Instance: otherInst})
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
		_, err = admit(&dtaskv1.AdmitRequest{ServerId: "n3", Instance: "short"})
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
		_, err = admit(&dtaskv1.AdmitRequest{ServerId: "n9", Instance: thirdInst})
		wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
		if !strings.Contains(err.Error(), "cluster add n9") {
			t.Errorf("%q does not say how a stranger gets in", err)
		}
		r.members = r.members[:2]
		_, err = admit(&dtaskv1.AdmitRequest{ServerId: "n4", Instance: thirdInst})
		wantRefusal(t, err, "was removed")
	})
}

func TestAFolderOlderThanWhatItAcknowledgedIsFoundOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := ofThree(t)
		for _, c := range []struct {
			last, stored uint64
			outdated     bool
		}{{100, 0, false}, {99, 0, true}, {150, 150, false}, {149, 150, true}} {
			r.stored = map[string]uint64{"n2": c.stored}
			got, err := r.cluster.Admit(t.Context(), &dtaskv1.AdmitRequest{ServerId: "n2", Instance: otherInst, ClusterId: testCluster, Stored: true, LastIndex: c.last})
			if err != nil || got.GetOutdated() != c.outdated {
				t.Errorf("%+v: got %v, %v", c, got, err)
			}
		}
	})
}

// TestWhoLedBeforeTellsThatAFolderIsTooOld: leadership may have moved on just now, and the
// new leader has not seen what the one before it saw.
func TestWhoLedBeforeTellsThatAFolderIsTooOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := ofThree(t)
		r.leading(false)
		r.stored = map[string]uint64{"n2": 150}
		q := &dtaskv1.AdmitRequest{ServerId: "n2", Instance: otherInst, ClusterId: testCluster, Stored: true, LastIndex: 149}
		if got, err := r.cluster.Admit(t.Context(), q); err != nil || !got.GetOutdated() {
			t.Errorf("got %v, %v", got, err)
		}
		for name, change := range map[string]func(*dtaskv1.AdmitRequest){
			"all is there":       func(q *dtaskv1.AdmitRequest) { q.LastIndex = 150 },
			"another folder":     func(q *dtaskv1.AdmitRequest) { q.Instance = thirdInst },
			"another cluster":    func(q *dtaskv1.AdmitRequest) { q.ClusterId = "another" },
			"a server not heard": func(q *dtaskv1.AdmitRequest) { q.ServerId = "n9" },
			"it does not ask so": func(q *dtaskv1.AdmitRequest) { q.Stored = false },
		} {
			other := proto.CloneOf(q)
			change(other)
			if _, err := r.cluster.Admit(t.Context(), other); err == nil {
				t.Errorf("%s: a replica that does not lead answered", name)
			}
		}
	})
}

func TestALostReplicaComesBackUnderANewID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := ofThree(t)
		rejoin := func(instance string) (string, error) {
			got, err := r.cluster.Admit(t.Context(), &dtaskv1.AdmitRequest{ServerId: "n2", Instance: instance, Address: "n2:1", Rejoin: true})
			return got.GetServerId(), err
		}
		r.lastHeard = map[string]time.Time{"n2": time.Now()}
		_, err := rejoin(thirdInst)
		wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
		time.Sleep(lostAfter)
		r.change = errors.New("cut short")
		_, err = rejoin(thirdInst)
		wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
		r.change = nil
		for range 2 { // it goes on where it was cut short; then a repeat
			if id, err := rejoin(thirdInst); err != nil || id != "n2-1" {
				t.Fatalf("got %s, %v", id, err)
			}
		}
		if want := []string{"remove n2", "add n2-1"}; !slices.Equal(r.changes, want) {
			t.Errorf("the members were changed by %q, want %q", r.changes, want)
		}
		again := strings.Repeat("2", 32)
		if id, err := rejoin(again); err != nil || id != "n2-2" { // lost once more, before it had a vote
			t.Errorf("got %s, %v", id, err)
		}
		r.members[len(r.members)-1].Voter = true
		n.add(t, "n2:1", running("n2-2", again))
		time.Sleep(5 * time.Second) // the connection is tried again
		_, err = rejoin(strings.Repeat("3", 32))
		wantRefusal(t, err, "n2-2 runs at n2:1")
		_, err = r.cluster.Admit(t.Context(), &dtaskv1.AdmitRequest{ServerId: "n7", Instance: strings.Repeat("4", 32), Address: "n7:1", Rejoin: true})
		wantRefusal(t, err, "no member")
		_, err = r.cluster.Admit(t.Context(), &dtaskv1.AdmitRequest{ServerId: "n3", Instance: strings.Repeat("5", 32), Rejoin: true})
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	})
}

func TestMembersAreAddedOneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := ofThree(t)
		n.add(t, "n4:1", &otherReplica{says: &dtaskv1.IdentifyResponse{ServerId: "n4", Instance: thirdInst, Empty: true}})
		n.add(t, "n5:1", &otherReplica{says: &dtaskv1.IdentifyResponse{ServerId: "n5", Instance: "5", Empty: true}})
		n.add(t, "n6:1", &otherReplica{says: &dtaskv1.IdentifyResponse{ServerId: "n6", Instance: "6"}})
		n.add(t, "n7:1", &otherReplica{says: &dtaskv1.IdentifyResponse{ServerId: "n7", Instance: "7", Empty: true, ClusterId: "another"}})
		add := func(id, address string) (*dtaskv1.AddMemberResponse, error) {
			return r.cluster.AddMember(t.Context(), &dtaskv1.AddMemberRequest{ServerId: id, Address: address})
		}
		for id, why := range map[string]string{"n6": "not empty", "n7": "cluster another", "n8": "nobody answers", "n5": "runs server n4"} {
			address := id + ":1"
			if id == "n5" {
				address = "n4:1"
			}
			_, err := add(id, address)
			wantRefusal(t, err, why)
		}
		_, err := add("n8", "n3:1")
		wantRefusal(t, err, "address of server n3")
		_, err = add("n2", "n9:1")
		wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
		_, err = add("n8", "")
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
		for range 2 {
			if got, err := add("n4", "n4:1"); err != nil || got.GetVoter() {
				t.Fatalf("got %v, %v", got, err)
			}
		}
		_, err = add("n5", "n5:1")
		wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
		_, err = r.cluster.RemoveMember(t.Context(), &dtaskv1.RemoveMemberRequest{ServerId: "n3"})
		wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
		r.members[3].Voter = true
		if got, err := add("n4", "n4:1"); err != nil || !got.GetVoter() {
			t.Errorf("got %v, %v", got, err)
		}
		r.leader.op(t, &fsm.Replica{ServerID: "n9", Instance: "9"}) // and it is no member: removed
		_, err = add("n9", "n9:1")
		wantRefusal(t, err, "was removed")
	})
}

func TestNobodyIsRemovedWhoIsNeededForAMajority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := ofThree(t)
		remove := func(id string) (*dtaskv1.RemoveMemberResponse, error) {
			return r.cluster.RemoveMember(t.Context(), &dtaskv1.RemoveMemberRequest{ServerId: id})
		}
		_, err := remove("n2")
		wantRefusal(t, err, "only 1 of 2 voters") // n3 is away
		n.add(t, "n3:1", running("n3", "c"))
		time.Sleep(5 * time.Second) // the connection is tried again
		_, err = remove("n8")
		wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
		for _, already := range []bool{false, true} {
			if got, err := remove("n2"); err != nil || got.GetAlreadyRemoved() != already {
				t.Errorf("got %v, %v; want already %v", got, err, already)
			}
		}
		r.members = []Member{{"n1", "n1:1", true}, {"n3", "n3:1", true}, {"n4", "n3:1", false}}
		_, err = remove("n3") // who waits goes first
		wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
		if _, err := remove("n4"); err != nil { // it needs no majority
			t.Error(err)
		}
		_, err = remove("n1") // the leader itself: the next one does it
		wantError(t, err, codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
		if want := []string{"remove n2", "remove n4", "transfer"}; !slices.Equal(r.changes, want) {
			t.Errorf("done: %q, want %q", r.changes, want)
		}
		r.members = r.members[:1]
		_, err = remove("n1")
		wantRefusal(t, err, "last voter")
	})
}

func TestLeadershipIsHandedToVotersOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := ofThree(t)
		r.members[2].Voter = false
		transfer := func(id string) error {
			_, err := r.cluster.TransferLeadership(t.Context(), &dtaskv1.TransferLeadershipRequest{ServerId: id})
			return err
		}
		for _, id := range []string{"", "n2", "n1"} {
			if err := transfer(id); err != nil {
				t.Errorf("to %q: %v", id, err)
			}
		}
		wantRefusal(t, transfer("n3"), "no vote")
		wantError(t, transfer("n9"), codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
		r.members = r.members[:1]
		wantRefusal(t, transfer(""), "no other voter")
		r.change = errors.New("no")
		r.members = []Member{{"n1", "n1:1", true}, {"n2", "n2:1", true}}
		wantRefusal(t, transfer("n2"), "not handed over")
		if want := []string{"transfer", "transfer to n2"}; !slices.Equal(r.changes, want) {
			t.Errorf("done: %q, want %q", r.changes, want)
		}
		r.leader.fail = &sequencer.RejectedError{Reason: fsm.WrongState} // another instance was first
		_, err := r.cluster.Admit(t.Context(), &dtaskv1.AdmitRequest{ServerId: "n8", Instance: thirdInst, Address: "n8:1", Rejoin: true})
		wantRefusal(t, err, "no member")
	})
}
