package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestIdentifyIsAnsweredBeforeRaftRuns(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.noRaft = true
	r.leading(false)
	got, err := r.cluster.Identify(t.Context(), &dtaskv1.IdentifyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &dtaskv1.IdentifyResponse{
		ServerId: "n1", Instance: testInstance, ClusterId: testCluster, PeersDigest: "d", Version: "v", HttpAddress: "h:1",
		State: "starting", Applied: r.machine.Index(),
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	r.noRaft = false
	r.raft.set(func(f *fakeRaft) { f.last = 9 })
	want.State, want.Term, want.LastIndex, want.LeaderId = "leader", 1, 9, "n1"
	got, err = r.cluster.Identify(t.Context(), &dtaskv1.IdentifyRequest{})
	if diff := cmp.Diff(want, got, protocmp.Transform()); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestDigestsAreTheMachinesMarks(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"))
	got, err := r.cluster.Digests(t.Context(), &dtaskv1.DigestsRequest{From: 2})
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

func TestStatsAreThisReplicas(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) {
		c.Totals = func() sequencer.Stats {
			return sequencer.Stats{Entries: 1, Operations: 2, Bytes: 3, Assignments: 4, Completions: 5}
		}
		c.Process = func() Process { return Process{Syncs: 6, LeaderChanges: 7} }
	})
	got, err := r.cluster.Stats(t.Context(), &dtaskv1.StatsRequest{})
	want := &dtaskv1.StatsResponse{
		Entries: 1, Operations: 2, Bytes: 3, Assignments: 4, Completions: 5, Syncs: 6, LeaderChanges: 7, AppliedIndex: r.machine.Index(),
	}
	if diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(want, "heap_bytes", "rss_bytes")); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestWorkersAreShownAsTheLeaderKnowsThem(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"), task("b"))
	w1, w2, w3 := r.worker(t), r.worker(t), r.worker(t)
	r.assign(t, held(1, 1, 1, w2))
	r.leader.op(t, &fsm.MarkWorkerDown{ID: w3, Reason: "left"})
	r.leader.statuses = map[fsm.WorkerID]sequencer.WorkerStatus{w1: {Attached: true, Draining: true}, w2: {Attached: true, Held: 1}}
	worker := func(id, name, state string, running uint32) *dtaskv1.Worker {
		return &dtaskv1.Worker{
			Id: id, Name: name, State: state, Slots: 4, Running: running, Labels: map[string]string{"zone": "eu"},
			Resources: map[string]int64{"cpu": 2000}, Version: "v", Address: "host",
		}
	}
	for _, c := range []struct {
		stale bool
		first string
	}{{false, "draining"}, {true, "up"}} {
		r.leading(!c.stale)
		got, err := r.cluster.ListWorkers(t.Context(), &dtaskv1.ListWorkersRequest{Stale: c.stale})
		if err != nil {
			t.Fatal(err)
		}
		want := []*dtaskv1.Worker{worker("1", "w1", c.first, 0), worker("2", "w2", "up", 1), worker("3", "w3", "down", 0)}
		times := protocmp.IgnoreFields(&dtaskv1.Worker{}, "up_since", "down_since")
		if diff := cmp.Diff(want, got.GetWorkers(), protocmp.Transform(), times); diff != "" {
			t.Errorf("stale %v: %s", c.stale, diff)
		}
	}
}

// Thousands of workers are listed in pages that follow each other, whoever answers,
// also while some are forgotten in between.
func TestWorkersAreListedInPages(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var all []string
	for range 7 {
		all = append(all, fmt.Sprint(r.worker(t)))
	}
	for _, limit := range []uint32{0, 1, 3, 7, maxListed} {
		var got []string
		q := &dtaskv1.ListWorkersRequest{Limit: limit}
		for more := true; more; {
			page, err := r.cluster.ListWorkers(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(page.GetWorkers()); limit > 0 && n > int(limit) {
				t.Errorf("a page of %d has %d workers", limit, n)
			}
			for _, w := range page.GetWorkers() {
				got = append(got, w.GetId())
			}
			q.PageToken = page.GetNextPageToken()
			more = q.GetPageToken() != ""
		}
		if !slices.Equal(got, all) {
			t.Errorf("pages of %d: got %v, want %v", limit, got, all)
		}
	}
	r.leader.op(t, &fsm.MarkWorkerDown{ID: 3, Reason: "left"})
	r.leader.op(t, &fsm.ForgetWorkers{IDs: []fsm.WorkerID{3}})
	for _, c := range []struct {
		q    *dtaskv1.ListWorkersRequest
		want string
	}{
		{&dtaskv1.ListWorkersRequest{PageToken: "3", Limit: 1}, "4"},
		{&dtaskv1.ListWorkersRequest{PageToken: "2", Limit: 1}, "4"},
		{&dtaskv1.ListWorkersRequest{Name: "w5"}, "5"},
		{&dtaskv1.ListWorkersRequest{Name: "w5", PageToken: "5"}, ""},
		{&dtaskv1.ListWorkersRequest{Name: "w3"}, ""},
		{&dtaskv1.ListWorkersRequest{PageToken: "99"}, ""},
	} {
		page, err := r.cluster.ListWorkers(t.Context(), c.q)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, w := range page.GetWorkers() {
			got += w.GetId()
		}
		if got != c.want {
			t.Errorf("%v: got %q, want %q", c.q, got, c.want)
		}
	}
	for _, q := range []*dtaskv1.ListWorkersRequest{{Limit: maxListed + 1}, {PageToken: "x"}, {PageToken: "-1"}} {
		_, err := r.cluster.ListWorkers(t.Context(), q)
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	}
}

// A page has no more bytes than one message may have.
func TestAPageOfWorkersIsBounded(t *testing.T) {
	t.Parallel()
	r := setup(t)
	long := strings.Repeat("x", 60<<10)
	for i := range 40 {
		r.leader.op(t, &fsm.RegisterWorker{ID: fsm.WorkerID(i + 1), Name: fmt.Sprint(i), Incarnation: "a", Labels: []fsm.Label{{Key: "k", Value: long}}})
	}
	page, err := r.cluster.ListWorkers(t.Context(), &dtaskv1.ListWorkersRequest{Limit: 100})
	if n := len(page.GetWorkers()); err != nil || n == 0 || n == 40 || page.GetNextPageToken() != fmt.Sprint(n) {
		t.Errorf("%d workers, then from %q on, %v", n, page.GetNextPageToken(), err)
	}
}

// network brings servers to each other by address. An address that is not in it
// takes connections and never answers.
type network struct {
	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
}

func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		<-ctx.Done() // a machine that is gone
		return nil, context.Cause(ctx)
	}
	return l.DialContext(ctx)
}

// otherReplica answers Identify as it is told.
type otherReplica struct {
	dtaskv1.UnimplementedClusterServiceServer
	says *dtaskv1.IdentifyResponse
	hang bool
}

func (o *otherReplica) Identify(ctx context.Context, _ *dtaskv1.IdentifyRequest) (*dtaskv1.IdentifyResponse, error) {
	if o.hang {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return o.says, nil
}

func (n *network) add(t *testing.T, address string, o *otherReplica) {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	n.mu.Lock()
	n.listeners[address] = l
	n.mu.Unlock()
	server := grpc.NewServer()
	dtaskv1.RegisterClusterServiceServer(server, o)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
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
	}{
		{
			"a dead member", "leader", &otherReplica{says: says("n2", "follower", 5, 1, 100)}, nil,
			"n1", 5, "leader follower unreachable",
			[]uint64{0, 1, 0},
		},
		{
			"a dead leader", "follower", &otherReplica{says: says("n2", "candidate", 6, 90, 120)}, nil,
			"", 6, "follower candidate unreachable",
			[]uint64{88, 0, 0},
		},
		{
			"a leader that hangs", "follower", &otherReplica{says: says("n2", "follower", 5, 90, 100)}, &otherReplica{hang: true},
			"", 5, "follower follower unreachable",
			[]uint64{88, 0, 0},
		},
		{
			"two leaders", "leader", &otherReplica{says: says("n2", "leader", 6, 200, 210)}, &otherReplica{says: says("n3", "follower", 6, 199, 210)},
			"n2", 6, "leader leader follower",
			[]uint64{198, 0, 1},
		},
		{
			"another one at the address", "leader", &otherReplica{says: says("n7", "leader", 9, 90, 100)}, &otherReplica{says: &dtaskv1.IdentifyResponse{
				ServerId: "n3", State: "leader", Term: 9, ClusterId: "another",
			}},
			"n1", 5, "leader unreachable unreachable",
			[]uint64{0, 0, 0},
		},
		{
			"one that starts, one that stops", "leader", &otherReplica{says: says("n2", "starting", 0, 0, 0)}, &otherReplica{says: says("n3", "shutdown", 5, 1, 1)},
			"n1", 5, "leader candidate unreachable",
			[]uint64{0, 2, 0},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := &network{listeners: make(map[string]*bufconn.Listener)}
				r := setup(t, func(cfg *Config) { cfg.Peers = NewPeers(grpc.WithContextDialer(n.dial)) })
				n.add(t, "n2:1", c.n2)
				if c.n3 != nil {
					n.add(t, "n3:1", c.n3)
				}
				r.members = []Member{{"n1", "n1:1", true}, {"n2", "n2:1", true}, {"n3", "n3:1", false}}
				r.raft.set(func(f *fakeRaft) { f.state, f.term, f.last = c.self, 5, 100 })
				r.leading(false)
				r.SetAlarm("look here")

				began := time.Now()
				got, err := r.cluster.Status(t.Context(), &dtaskv1.StatusRequest{})
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("it took %s", took)
				}
				if got.GetLeader() != c.leader || got.GetTerm() != c.term || got.GetReplica() != "n1" ||
					got.GetClusterId() != testCluster || got.GetAlarm() != "look here" {
					t.Errorf("got %v, want leader %q and term %d", got, c.leader, c.term)
				}
				var states []string
				for i, m := range got.GetMembers() {
					states = append(states, m.GetState())
					if m.GetId() != r.members[i].ID || m.GetAddress() != r.members[i].Address || m.GetLag() != c.lags[i] || m.GetVoter() != r.members[i].Voter {
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

func TestStatusBeforeRaftRunsTellsOfThisReplicaAlone(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.noRaft, r.members = true, nil
	got, err := r.cluster.Status(t.Context(), &dtaskv1.StatusRequest{})
	if err != nil || got.GetLeader() != "" || len(got.GetMembers()) != 1 || got.GetMembers()[0].GetState() != "candidate" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestConnectionsToFormerMembersAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &network{listeners: make(map[string]*bufconn.Listener)}
		p := NewPeers(grpc.WithContextDialer(n.dial))
		n.add(t, "n2:1", &otherReplica{says: says("n2", "follower", 1, 1, 1)})
		for _, members := range [][]Member{{{"n2", "n2:1", true}}, nil} {
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

func TestReadyGivesAllReasonsWhyNot(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name    string
		raft    *fakeRaft
		reasons int
	}{
		{"no raft", nil, 1},
		{"leader", &fakeRaft{id: "n1", state: "leader"}, 0},
		{"follower", &fakeRaft{id: "n2", state: "follower", heard: now}, 0},
		{"no leader", &fakeRaft{state: "follower", heard: now}, 1},
		{"far behind", &fakeRaft{id: "n2", state: "follower", heard: now, last: 1 << 20}, 1},
		{"all", &fakeRaft{state: "follower", last: 1 << 20}, 3},
		{"stopped", &fakeRaft{state: "shutdown"}, 2},
	} {
		s := &Server{cfg: Config{Machine: fsm.NewMachine(fsm.Compact{}), Raft: func() Raft {
			if c.raft == nil {
				return nil
			}
			return c.raft
		}}}
		err := s.Ready()
		got := 0
		if err != nil {
			got = len(strings.Split(err.Error(), "\n"))
		}
		if got != c.reasons {
			t.Errorf("%s: got %v, want %d reasons", c.name, err, c.reasons)
		}
	}
}

func TestTheStandardHealthServiceAnswers(t *testing.T) {
	t.Parallel()
	r := setup(t)
	got, err := healthv1.NewHealthClient(r.conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil || got.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestAConfigurationNamesAllThatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := NewServer(Config{MaxPayload: 1 << 20})
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("got %v, want 4 problems", err)
	}
}

// failingListener fails at once.
type failingListener struct{ net.Listener }

func (failingListener) Accept() (net.Conn, error) { return nil, errors.New("no more files") }
func (failingListener) Close() error              { return nil }
func (failingListener) Addr() net.Addr            { return &net.TCPAddr{} }

func TestServeReturnsWhenTheListenerFails(t *testing.T) {
	t.Parallel()
	r := setup(t)
	s, err := NewServer(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), failingListener{}); err == nil || !strings.Contains(err.Error(), "no more files") {
		t.Errorf("got %v", err)
	}
}
