package membership

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// openContext is the context of a call to a cluster without identities.
func openContext(t *testing.T) context.Context {
	t.Helper()
	return auth.NewContext(t.Context(), &auth.Principal{Role: auth.Admin, Via: auth.ViaOpen})
}

// Who may only read jobs or run tasks learns no address that serves operators, and nothing
// about the data directory of a coordinator.
func TestSubmittersAndWorkersGetABriefForm(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.last = 9
	for _, c := range []struct {
		role  auth.Role
		brief bool
	}{{auth.Admin, false}, {auth.Operator, false}, {auth.Replica, false}, {auth.Submitter, true}, {auth.Reader, true}, {auth.Worker, true}, {auth.Anonymous, true}} {
		ctx := auth.NewContext(t.Context(), &auth.Principal{Role: c.role, Via: auth.ViaToken})
		got, err := r.Identify(ctx, &dtaskv1.IdentifyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		want := r.identify()
		if c.brief {
			want = &dtaskv1.IdentifyResponse{ServerId: "n1", ClusterId: testCluster, LeaderId: "n1", State: "leader", Version: "v", MinLevel: want.GetMinLevel(), MaxLevel: want.GetMaxLevel()}
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", c.role, diff)
		}
		st, err := r.Status(ctx, &dtaskv1.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if hidden := st.GetMembers()[0].GetHttpAddress() == ""; hidden != c.brief {
			t.Errorf("%s: got member %v", c.role, st.GetMembers()[0])
		}
	}
}

func TestIdentifyIsAnsweredBeforeRaftRuns(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.noRaft = true
	r.leads = false
	got, err := r.Identify(openContext(t), &dtaskv1.IdentifyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &dtaskv1.IdentifyResponse{
		ServerId: "n1", Instance: testInstance, ClusterId: testCluster, PeersDigest: "d", Version: "v", HttpAddress: "h:1",
		State: "starting", Applied: r.machine.Index(), MinLevel: uint32(fsm.MinLevel), MaxLevel: uint32(fsm.MaxLevel),
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	r.noRaft = false
	r.last = 9
	want.State, want.Term, want.LastIndex, want.LeaderId = "leader", 1, 9, "n1"
	got, err = r.Identify(openContext(t), &dtaskv1.IdentifyRequest{})
	if diff := cmp.Diff(want, got, protocmp.Transform()); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestDigestsAreTheMachinesMarks(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t)
	got, err := r.Digests(t.Context(), &dtaskv1.DigestsRequest{From: 2})
	if err != nil || got.GetServerId() != "n1" {
		t.Fatal(got, err)
	}
	want := r.machine.Marks(2)
	if len(got.GetDigests()) != len(want) || len(want) == 0 {
		t.Fatalf("got %d digests, want %d", len(got.GetDigests()), len(want))
	}
	for i, d := range got.GetDigests() {
		if d.GetIndex() != want[i].Index || d.GetValue() != want[i].Digest {
			t.Errorf("got %v, want %v", d, want[i])
		}
	}
}

func says(id, state string, term, applied, last uint64) *dtaskv1.IdentifyResponse {
	return &dtaskv1.IdentifyResponse{ServerId: id, State: state, Term: term, Applied: applied, LastIndex: last, ClusterId: testCluster}
}

func TestStatusIsAnsweredInTimeWhateverTheOthersDo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		self   string // state of n1, in term 5 with its log at 100, raft's own entries from 3 on
		n2     *otherReplica
		n3     *otherReplica // nil = gone
		leader string
		term   uint64
		states string
		lags   []uint64
		alarms []string
	}{
		{
			"a dead member", "leader", &otherReplica{response: says("n2", "follower", 5, 1, 100)}, nil,
			"n1", 5, "leader follower unreachable",
			[]uint64{0, 1, 0},
			[]string{"n1 divergence", "n3 unreachable"},
		},
		{
			"a dead leader", "follower", &otherReplica{response: says("n2", "candidate", 6, 90, 120)}, nil,
			"", 6, "follower candidate unreachable",
			[]uint64{88, 0, 0},
			[]string{"n1 divergence", "n3 unreachable"},
		},
		{
			"a leader that hangs", "follower", &otherReplica{response: says("n2", "follower", 5, 90, 100)}, &otherReplica{hang: true},
			"", 5, "follower follower unreachable",
			[]uint64{88, 0, 0},
			[]string{"n1 divergence", "n3 unreachable"},
		},
		{
			"two leaders", "leader", &otherReplica{response: says("n2", "leader", 6, 200, 210)}, &otherReplica{response: says("n3", "follower", 6, 199, 210)},
			"n2", 6, "leader leader follower",
			[]uint64{198, 0, 1},
			[]string{"n1 divergence"},
		},
		{
			"another one at the address", "leader", &otherReplica{response: says("n7", "leader", 9, 90, 100)}, &otherReplica{response: &dtaskv1.IdentifyResponse{
				ServerId: "n3", State: "leader", Term: 9, ClusterId: "another",
			}},
			"n1", 5, "leader unreachable unreachable",
			[]uint64{0, 0, 0},
			[]string{"n1 divergence", "n2 unreachable", "n3 unreachable"},
		},
		{
			"one that starts, one that stops", "leader", &otherReplica{response: says("n2", "starting", 0, 0, 0)}, &otherReplica{response: says("n3", "shutdown", 5, 1, 1)},
			"n1", 5, "leader candidate unreachable",
			[]uint64{0, 2, 0},
			[]string{"n1 divergence", "n3 unreachable"},
		},
		{
			"one that stays out", "leader", &otherReplica{response: says("n2", "follower", 5, 1, 1)}, &otherReplica{response: &dtaskv1.IdentifyResponse{
				ServerId: "n3", State: "starting", ClusterId: testCluster, Alarms: []*dtaskv1.Alarm{{Member: "n3", Kind: AlarmHistoryConflict}},
			}},
			"n1", 5, "leader follower halted",
			[]uint64{0, 1, 2},
			[]string{"n1 divergence", "n3 history-conflict"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := setup(t)
				n := r.network
				n.add(t, "n2:1", c.n2)
				if c.n3 != nil {
					n.add(t, "n3:1", c.n3)
				}
				r.servers = []raftnode.Server{voter("n1"), voter("n2"), {ID: "n3", Address: "n3:1"}}
				r.state, r.term, r.last, r.leads = c.self, 5, 100, false
				r.alarms.Raise(AlarmDivergence, "look here")

				began := time.Now()
				got, err := r.Status(openContext(t), &dtaskv1.StatusRequest{})
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("it took %s", took)
				}
				if got.GetLeader() != c.leader || got.GetTerm() != c.term || got.GetReplica() != "n1" ||
					got.GetClusterId() != testCluster {
					t.Errorf("got %v, want leader %q and term %d", got, c.leader, c.term)
				}
				var alarms []string
				for _, a := range got.GetAlarms() {
					alarms = append(alarms, a.GetMember()+" "+a.GetKind())
				}
				if want := c.alarms; !slices.Equal(alarms, want) {
					t.Errorf("got the alarms %q, want %q", alarms, want)
				}
				var states []string
				for i, m := range got.GetMembers() {
					states = append(states, m.GetState())
					if m.GetId() != r.servers[i].ID || m.GetAddress() != r.servers[i].Address || m.GetLag() != c.lags[i] || m.GetVoter() != r.servers[i].Voter {
						t.Errorf("got %v, want a lag of %d", m, c.lags[i])
					}
				}
				if strings.Join(states, " ") != c.states {
					t.Errorf("got %v, want %s", states, c.states)
				}
			})
		})
	}
}

// Not since the last entry that it has applied: the cluster may have been idle before.
func TestAMemberLagsSinceTheEntryThatItAppliesNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // a member has a second to answer
		r := setup(t)
		r.nowMS += 3_600_000 // without an entry
		r.submit(t)
		r.wallMS = r.nowMS + 480
		last := r.machine.Index()
		r.servers = []raftnode.Server{voter("n1"), voter("n2"), voter("n3"), voter("n4"), voter("n5")}
		r.network.add(t, "n2:1", &otherReplica{response: says("n2", "follower", 1, last-1, last)})
		r.network.add(t, "n3:1", &otherReplica{response: says("n3", "follower", 1, last, last)})
		r.network.add(t, "n4:1", &otherReplica{response: says("n4", "starting", 0, 0, 0)}) // before what is kept
		for wall, want := range map[int64][]*int64{
			r.nowMS + 480: {new(int64(0)), new(int64(480)), new(int64(0)), nil, nil},
			r.nowMS - 9:   {new(int64(0)), new(int64(0)), new(int64(0)), nil, nil}, // of the leader before, whose clock was ahead
			0:             {new(int64(0)), nil, new(int64(0)), nil, nil},           // the leader is older than this field
		} {
			r.wallMS = wall
			got, err := r.Status(openContext(t), &dtaskv1.StatusRequest{})
			if err != nil {
				t.Fatal(err)
			}
			var lags []*int64
			for _, m := range got.GetMembers() {
				lags = append(lags, m.LagMs) //nolint:protogetter // nil is another value than 0
			}
			if diff := cmp.Diff(want, lags); diff != "" {
				t.Errorf("at %d: %s", wall, diff)
			}
		}
	})
}

func TestStatusBeforeRaftRunsTellsOfThisReplicaAlone(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.noRaft, r.servers = true, nil
	got, err := r.Status(openContext(t), &dtaskv1.StatusRequest{})
	if err != nil || got.GetLeader() != "" || len(got.GetMembers()) != 1 || got.GetMembers()[0].GetState() != "candidate" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestConnectionsToFormerMembersAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &network{listeners: make(map[string]*bufconn.Listener)}
		p := NewPeers(n.dial)
		n.add(t, "n2:1", &otherReplica{response: says("n2", "follower", 1, 1, 1)})
		for _, members := range [][]raftnode.Server{{voter("n2")}, nil} {
			if _, err := p.Identify(t.Context(), "n2:1"); err != nil {
				t.Fatal(err)
			}
			p.retain(members)
			if len(p.conns) != len(members) {
				t.Errorf("%d connections are open, want %d", len(p.conns), len(members))
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if _, err := p.Identify(t.Context(), "n2:1"); err == nil {
			t.Error("closed Peers made a connection")
		}
	})
}
