package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	testCluster  = "0123456789abcdef0123456789abcdef"
	testInstance = "fedcba9876543210fedcba9876543210"
)

// The real types implement the interfaces of this package.
var (
	_ Leader = (*sequencer.Sequencer)(nil)
	_ Raft   = (*raftnode.Node)(nil)
)

// fakeRaft returns what a test sets.
type fakeRaft struct {
	mu      sync.Mutex
	id      string // of the leader
	address string
	term    uint64
	state   string
	last    uint64
	contact time.Time
	err     error
	onRead  func()        // called by ReadIndex, unlocked
	asked   chan struct{} // receives when Leader is called and a test listens; may be nil
	reads   int
}

func (r *fakeRaft) ReadIndex(ctx context.Context) (uint64, error) {
	r.mu.Lock()
	err, f := r.err, r.onRead
	r.reads++
	r.mu.Unlock()
	if f != nil {
		f()
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return 0, err
}

func (r *fakeRaft) Leader() (id, address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.asked <- struct{}{}:
	default:
	}
	return r.id, r.address
}

func (r *fakeRaft) Term() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.term
}

func (r *fakeRaft) State() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

func (r *fakeRaft) LastIndex() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

func (r *fakeRaft) LastContact() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.contact
}

func (r *fakeRaft) set(f func(r *fakeRaft)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r)
}

// fakeLogs answers Logs and records the requests.
type fakeLogs struct {
	mu    sync.Mutex
	asked []fsm.HeldAttempt
	err   error
	hang  bool
}

func (f *fakeLogs) Logs(ctx context.Context, h fsm.HeldAttempt, stream dtaskv1.LogStream, _ bool, send func(*dtaskv1.LogData) error) error {
	f.mu.Lock()
	f.asked = append(f.asked, h)
	err, hang := f.err, f.hang
	f.mu.Unlock()
	if err != nil {
		return err
	}
	if err := send(&dtaskv1.LogData{Pieces: []*dtaskv1.LogPiece{{Stream: max(stream, dtaskv1.LogStream_LOG_STREAM_STDOUT), Data: []byte("hello\n")}}}); err != nil {
		return err
	}
	if hang {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}

// replica is a server under test with its dependencies.
type replica struct {
	*Server
	machine *fsm.Machine
	leader  *memLeader // applies entries, whether this replica leads or not
	raft    *fakeRaft
	logs    *fakeLogs
	conn    *grpc.ClientConn
	dial    func(context.Context) (net.Conn, error)
	jobs    dtaskv1.JobServiceClient
	admin   dtaskv1.AdminServiceClient

	schedules dtaskv1.ScheduleServiceClient
	queues    dtaskv1.QueueServiceClient
	limits    dtaskv1.LimitServiceClient

	mu     sync.Mutex // guards the fields below
	inTerm bool
	noRaft bool
}

func (r *replica) leading(yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inTerm = yes
}

// baseConfig is a Config without Leader and Raft.
func baseConfig(m *fsm.Machine) Config {
	return Config{
		ServerID: "n1", Machine: m, Logs: &fakeLogs{}, Logger: slog.New(slog.DiscardHandler),
		Totals: func() sequencer.Stats { return sequencer.Stats{} }, Process: func() Process { return Process{} },
		Classify:  func(error) *Error { return nil },
		ClusterID: func() (id string) { m.Read(func(st *fsm.State, _ uint64) { id = st.ClusterID() }); return id },
	}
}

// setup starts a server that leads term 1, and a client. change may change its
// configuration.
func setup(t *testing.T, change ...func(*Config)) *replica {
	t.Helper()
	r := build(t, change...)
	r.serve(t)
	return r
}

// build is setup for a server that doesn't serve yet.
func build(t *testing.T, change ...func(*Config)) *replica {
	t.Helper()
	r := &replica{
		machine: fsm.NewMachine(), inTerm: true,
		raft: &fakeRaft{id: "n1", address: "n1:1", term: 1, state: "leader"}, logs: &fakeLogs{},
	}
	r.leader = &memLeader{machine: r.machine, nowMS: 1_000_000}
	r.machine.SupportLevel(max(namespaceLevel, fsm.MaxLevel))
	r.leader.op(t, &fsm.SetClusterID{ID: testCluster}, &fsm.StartTerm{Term: 1, ServerID: "n1"})
	cfg := baseConfig(r.machine)
	cfg.Logs = r.logs
	cfg.Leader = func() Leader {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.inTerm {
			return nil
		}
		return r.leader
	}
	cfg.Raft = func() Raft {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.noRaft {
			return nil
		}
		return r.raft
	}
	cfg.LeaderWait = time.Millisecond // most tests want the error that follows
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if r.Server, err = NewServer(cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *replica) serve(t *testing.T) {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx, l) }()
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	r.dial = l.DialContext
	if err != nil {
		t.Fatal(err)
	}
	r.conn, r.jobs, r.admin = conn, dtaskv1.NewJobServiceClient(conn), dtaskv1.NewAdminServiceClient(conn)
	r.schedules, r.queues, r.limits = dtaskv1.NewScheduleServiceClient(conn), dtaskv1.NewQueueServiceClient(conn), dtaskv1.NewLimitServiceClient(conn)
	t.Cleanup(func() {
		cancel()
		_ = conn.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// header is the smallest valid header.
func header(name string) *dtaskv1.JobHeader {
	return &dtaskv1.JobHeader{
		Name: name, Priority: dtaskv1.Priority_PRIORITY_NORMAL, OnFailure: dtaskv1.OnFailure_ON_FAILURE_STOP,
		Policies: []*dtaskv1.TaskPolicy{{Type: "noop", TimeoutMs: 1000, Retry: &dtaskv1.RetryPolicy{}, Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE}},
	}
}

func task(id string, deps ...uint32) *dtaskv1.TaskSpec {
	return &dtaskv1.TaskSpec{Id: id, Dependencies: deps, Body: &dtaskv1.TaskBody{}}
}

// diamond is task a, then b and c, then d.
func diamond() []*dtaskv1.TaskSpec {
	return []*dtaskv1.TaskSpec{task("a"), task("b", 0), task("c", 0), task("d", 1, 2)}
}

func request(key string, h *dtaskv1.JobHeader, tasks ...*dtaskv1.TaskSpec) *dtaskv1.JobPart {
	return &dtaskv1.JobPart{Header: h, IdempotencyKey: key, Total: uint32(len(tasks)), Tasks: tasks}
}

// send submits a job whose parts have a message each.
func (r *replica) send(ctx context.Context, parts ...*dtaskv1.JobPart) (*dtaskv1.StoredJob, error) {
	messages := make([]*dtaskv1.SubmitRequest, len(parts))
	for i, p := range parts {
		p.Job, p.More = 1, i < len(parts)-1
		messages[i] = &dtaskv1.SubmitRequest{Parts: []*dtaskv1.JobPart{p}}
	}
	results, err := r.exchange(ctx, messages...)
	if err != nil || results[1] == nil {
		return nil, err
	}
	return results[1].GetStored(), errorOf(results[1])
}

// exchange sends messages on one stream, closes it and returns all results by the
// number of their job.
func (r *replica) exchange(ctx context.Context, messages ...*dtaskv1.SubmitRequest) (map[uint64]*dtaskv1.SubmitResult, error) {
	stream, err := r.jobs.Submit(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		if err = stream.Send(m); errors.Is(err, io.EOF) {
			break // the status has the reason
		} else if err != nil {
			return nil, err
		}
	}
	if err = stream.CloseSend(); err != nil {
		return nil, err
	}
	results := make(map[uint64]*dtaskv1.SubmitResult)
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return results, nil
		} else if err != nil {
			return results, err
		}
		for _, result := range m.GetResults() {
			results[result.GetJob()] = result
		}
	}
}

// errorOf returns the error of a result.
func errorOf(r *dtaskv1.SubmitResult) error {
	if r.GetStored() != nil {
		return nil
	}
	return withDetail(codes.Code(r.GetCode()), r.GetMessage(), r.GetDetail())
}

// submit stores a job and returns its id.
func (r *replica) submit(t *testing.T, name string, tasks ...*dtaskv1.TaskSpec) fsm.JobID {
	t.Helper()
	resp, err := r.send(t.Context(), request(name, header(name), tasks...))
	if err != nil {
		t.Fatalf("submitting %s: %v", name, err)
	}
	id, err := parseJobID(resp.GetId())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// worker registers a worker.
func (r *replica) worker(t *testing.T) fsm.WorkerID {
	t.Helper()
	fork, _ := r.machine.Fork()
	id := fork.NextWorker()
	r.leader.op(t, &fsm.RegisterWorker{
		ID: id, Name: "w" + string(rune('0'+id)), Incarnation: testInstance, Slots: 4, Version: "v", Address: "host",
		Labels: []fsm.Label{{Key: "zone", Value: "eu"}}, Resources: []fsm.Resource{{Name: "cpu", Amount: 2000}},
	})
	return id
}

func held(job fsm.JobID, index, attempt uint32, w fsm.WorkerID) fsm.HeldAttempt {
	return fsm.HeldAttempt{AttemptRef: fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: job, Index: index}, Attempt: attempt}, Worker: w}
}

func (r *replica) assign(t *testing.T, h fsm.HeldAttempt) {
	t.Helper()
	if got := r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Assign(fsm.AssignItem(h)) }); got != fsm.Accepted {
		t.Fatalf("assigning %v: %v", h, got)
	}
}

// complete assigns and completes a task in one entry, so that it is never seen running.
func (r *replica) complete(t *testing.T, h fsm.HeldAttempt, result string) {
	t.Helper()
	got := r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason {
		if refused := d.Assign(fsm.AssignItem(h)); refused != fsm.Accepted {
			return refused
		}
		return d.Complete(fsm.CompleteItem{HeldAttempt: h, DurationMS: 5, Result: []byte(result)})
	})
	if got != fsm.Accepted {
		t.Fatalf("completing %v: %v", h, got)
	}
}

// wantError checks code and reason of an error and returns its detail.
func wantError(t *testing.T, err error, code codes.Code, reason dtaskv1.ErrorReason) *dtaskv1.ErrorDetail {
	t.Helper()
	st, _ := status.FromError(err)
	if err == nil || st.Code() != code {
		t.Fatalf("got error %v, want code %v", err, code)
	}
	for _, d := range st.Details() {
		if detail, ok := d.(*dtaskv1.ErrorDetail); ok {
			if detail.GetReason() != reason {
				t.Fatalf("got reason %v of %v, want %v", detail.GetReason(), err, reason)
			}
			return detail
		}
	}
	t.Fatalf("error %v has no detail", err)
	return nil
}
