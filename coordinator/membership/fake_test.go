package membership

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	testCluster  = "0123456789abcdef0123456789abcdef"
	testInstance = "fedcba9876543210fedcba9876543210"
)

// The real ones satisfy the interfaces of this package.
var (
	_ Recorder = (*sequencer.Sequencer)(nil)
	_ Node     = (*raftnode.Node)(nil)
)

// replica is a service under test with its fakes: it is its own Recorder, which applies
// to the machine without a log, and its own Node.
type replica struct {
	*Service

	machine *fsm.Machine
	network *network

	alarms     Alarms
	nowMS      int64
	wallMS     int64
	leads      bool
	founded    bool // the term founded the cluster
	noRaft     bool
	recordErr  error // of Admit
	servers    []raftnode.Server
	state      string
	term, last uint64
	changes    []string             // made to the members
	changeErr  error                // of every change
	stored     map[string]uint64    // by member
	heard      map[string]time.Time // by member
}

// setup makes the leader n1 of term 1, alone, in a network of other replicas.
func setup(t *testing.T) *replica {
	t.Helper()
	r := &replica{
		machine: fsm.NewMachine(), network: &network{listeners: make(map[string]*bufconn.Listener)}, nowMS: 1_000_000,
		leads: true, servers: []raftnode.Server{voter("n1")}, state: "leader", term: 1,
	}
	r.op(t, &fsm.SetClusterID{ID: testCluster}, &fsm.StartTerm{Term: 1, ServerID: "n1"})
	peers := NewPeers(r.network.dial)
	t.Cleanup(func() {
		if err := peers.Close(); err != nil {
			t.Error(err)
		}
	})
	var err error
	r.Service, err = New(Config{
		ServerID: "n1", Machine: r.machine, Peers: peers, Logger: slog.New(slog.DiscardHandler),
		Self: func() Self {
			return Self{Instance: testInstance, ClusterID: testCluster, PeersDigest: "d", Version: "v", HTTPAddress: "h:1", WallMS: r.wallMS, Alarms: r.alarms.Of("n1")}
		},
		Node: func() Node {
			if r.noRaft {
				return nil
			}
			return r
		},
		Recorder: func() Recorder {
			if !r.leads {
				return nil
			}
			return r
		},
		Confirm: func(context.Context) error { return nil }, UpgradeAfter: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func voter(id string) raftnode.Server {
	return raftnode.Server{ID: id, Address: id + ":1", Voter: true}
}

// apply applies one entry.
func (r *replica) apply(op fsm.Op) fsm.Reason {
	fork, index := r.machine.Fork()
	r.nowMS += 10
	b := fsm.NewEntryBuilder(fork, r.nowMS, &fsm.Effects{})
	reason := b.Do(op)
	if entry, _, ok := b.Finish(); ok {
		r.machine.Apply(index+1, fsm.Encode(nil, entry))
	}
	return reason
}

func (r *replica) op(t *testing.T, ops ...fsm.Op) {
	t.Helper()
	for _, op := range ops {
		if reason := r.apply(op); reason != fsm.Accepted {
			t.Fatalf("%T was rejected: %v", op, reason)
		}
	}
}

func (r *replica) Admit(_ context.Context, rec fsm.Replica) error {
	if r.recordErr != nil {
		return r.recordErr
	}
	if reason := r.apply(&rec); reason != fsm.Accepted {
		return &sequencer.RejectedError{Reason: reason}
	}
	return nil
}

func (r *replica) ChangeLevel(_ context.Context, decide func(level fsm.Level, held bool) *fsm.SetLevel) error {
	op := decide(r.level())
	if op == nil {
		return nil
	}
	if reason := r.apply(op); reason != fsm.Accepted {
		return &sequencer.RejectedError{Reason: reason}
	}
	return nil
}

func (r *replica) SetClusterName(_ context.Context, name string) (already bool, err error) {
	op := &fsm.SetClusterName{Name: name}
	if level, _ := r.level(); level < fsm.OpLevel(op) {
		return false, &sequencer.RejectedError{Reason: fsm.AboveLevel}
	}
	reason := r.apply(op)
	if reason != fsm.Accepted && reason != fsm.AlreadyEnded {
		return false, &sequencer.RejectedError{Reason: reason}
	}
	return reason == fsm.AlreadyEnded, nil
}

func (r *replica) Founded() bool { return r.founded }

// admitted calls the RPC, which Admit of the Recorder hides.
func (r *replica) admitted(t *testing.T, q *dtaskv1.AdmitRequest) (*dtaskv1.AdmitResponse, error) {
	t.Helper()
	return r.Service.Admit(t.Context(), q)
}

func (r *replica) Servers() []raftnode.Server        { return r.servers }
func (r *replica) Leader() (id, address string)      { return "n1", "n1:1" }
func (r *replica) Term() uint64                      { return r.term }
func (r *replica) State() string                     { return r.state }
func (r *replica) LastIndex() uint64                 { return r.last }
func (r *replica) CommitIndex() uint64               { return r.last }
func (r *replica) DurableIndex(id string) uint64     { return r.stored[id] }
func (r *replica) LastContactOf(id string) time.Time { return r.heard[id] }

func (r *replica) Barrier(context.Context) (uint64, error) { return r.term, nil }

// change makes a change of the members.
func (r *replica) change(what string, servers []raftnode.Server) error {
	if r.changeErr == nil {
		r.changes, r.servers = append(r.changes, what), servers
	}
	return r.changeErr
}

func (r *replica) AddNonvoter(_ context.Context, id, address string) error {
	return r.change("add "+id, append(slices.Clone(r.servers), raftnode.Server{ID: id, Address: address}))
}

func (r *replica) AddVoter(_ context.Context, id, _ string) error {
	servers := slices.Clone(r.servers)
	servers[indexOf(servers, id)].Voter = true
	return r.change("promote "+id, servers)
}

func (r *replica) Remove(_ context.Context, id string) error {
	return r.change("remove "+id, slices.DeleteFunc(slices.Clone(r.servers), func(s raftnode.Server) bool { return s.ID == id }))
}

func (r *replica) Transfer(context.Context) error { return r.change("transfer", r.servers) }

func (r *replica) TransferTo(_ context.Context, id string) error {
	return r.change("transfer to "+id, r.servers)
}

// wantError checks that an error has a kind and contains a text.
func wantError(t *testing.T, err error, kind Kind, text string) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Kind != kind || !strings.Contains(e.Message, text) {
		t.Errorf("got error %v, want kind %d with %q", err, kind, text)
	}
}

// network connects to servers by address. An address without one accepts connections
// and never answers.
type network struct {
	mu        sync.Mutex // guards listeners
	listeners map[string]*bufconn.Listener
}

func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		<-ctx.Done() // a host that vanished
		return nil, context.Cause(ctx)
	}
	return l.DialContext(ctx)
}

// refuse makes an address one that refuses connections.
func (n *network) refuse(address string) {
	l := bufconn.Listen(1)
	_ = l.Close() // never fails
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[address] = l
}

// otherReplica answers Identify with a fixed response.
type otherReplica struct {
	dtaskv1.UnimplementedClusterServiceServer

	response *dtaskv1.IdentifyResponse
	hang     bool
	asked    atomic.Int32
	late     atomic.Int32 // which question gets no answer in time, from 1; 0: none
}

func (o *otherReplica) Identify(ctx context.Context, _ *dtaskv1.IdentifyRequest) (*dtaskv1.IdentifyResponse, error) {
	if o.asked.Add(1) == o.late.Load() || o.hang {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return o.response, nil
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

// submit stores a job of two tasks.
func (r *replica) submit(t *testing.T) {
	t.Helper()
	b := fsm.NewChunkBuilder(0)
	b.Add("a", 0, nil, []byte{})
	b.Add("b", 0, nil, []byte{})
	chunk := b.Chunk()
	header := &dtaskv1.JobHeader{
		Name: "x", Priority: dtaskv1.Priority_PRIORITY_NORMAL, OnFailure: dtaskv1.OnFailure_ON_FAILURE_STOP,
		Policies: []*dtaskv1.TaskPolicy{{Type: "noop", TimeoutMs: 1000, Retry: &dtaskv1.RetryPolicy{}, Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE}},
	}
	text, err := proto.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	r.op(t, &fsm.BeginUpload{ID: 1, Key: "k", KeyExpires: 1, Header: text, Total: 2}, &fsm.AddChunk{Job: 1, Chunk: chunk}, &fsm.SealUpload{Job: 1, Sum: chunk.Sum(0)})
}
