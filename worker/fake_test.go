package worker

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/leak"
	"github.com/dtask/dtask/worker/process"
)

func TestMain(m *testing.M) {
	process.RunSupervisor() // commands run under this test binary
	code := leak.Patient{M: m}.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

const cluster = "0123456789abcdef0123456789abcdef"

// network is a set of fake replicas that a worker reaches by address.
type network struct {
	t  *testing.T
	mu sync.Mutex // guards nodes
	// nodes are the replicas that listen.
	nodes map[string]*node
	// patience, unless 0, is how long workers and leaders wait for each other: in real time,
	// the machine may stall.
	patience time.Duration
}

// node is a fake replica.
type node struct {
	dtaskv1.UnimplementedWorkerServiceServer
	dtaskv1.UnimplementedClusterServiceServer
	listener *bufconn.Listener
	server   *grpc.Server
	patience time.Duration // see network
	// answer ends each session immediately with its error. Optional.
	answer   func() error
	sessions chan *leaderEnd
	streams  atomic.Int64 // streams that were opened
	asked    atomic.Int64 // calls of AwaitLeader
	// leader answers AwaitLeader immediately; nil: nobody leads a later term.
	leader atomic.Pointer[dtaskv1.AwaitLeaderResponse]
}

func (r *node) AwaitLeader(ctx context.Context, q *dtaskv1.AwaitLeaderRequest) (*dtaskv1.AwaitLeaderResponse, error) {
	r.asked.Add(1)
	if leader := r.leader.Load(); leader != nil {
		return leader, nil
	}
	select {
	case <-time.After(time.Duration(q.GetWaitMs()) * time.Millisecond):
	case <-ctx.Done():
	}
	return &dtaskv1.AwaitLeaderResponse{}, nil
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	return &network{t: t, nodes: map[string]*node{}}
}

// newRealNetwork is a network of a test that runs in real time.
func newRealNetwork(t *testing.T) *network {
	t.Helper()
	n := newNetwork(t)
	n.patience = 2 * time.Minute
	return n
}

// listen starts a replica that passes its sessions to the test.
func (n *network) listen(addr string, answer func() error) *node {
	r := &node{listener: bufconn.Listen(1 << 20), server: grpc.NewServer(), answer: answer, sessions: make(chan *leaderEnd, 64), patience: n.patience}
	dtaskv1.RegisterWorkerServiceServer(r.server, r)
	dtaskv1.RegisterClusterServiceServer(r.server, r)
	n.mu.Lock()
	n.nodes[addr] = r
	n.mu.Unlock()
	go func() { _ = r.server.Serve(r.listener) }() // stop ends it
	return r
}

// stop kills a replica.
func (n *network) stop(addr string) {
	n.mu.Lock()
	r := n.nodes[addr]
	delete(n.nodes, addr)
	n.mu.Unlock()
	if r != nil {
		r.server.Stop()
	}
}

func (n *network) stopAll() {
	n.mu.Lock()
	var addrs []string
	for addr := range n.nodes {
		addrs = append(addrs, addr)
	}
	n.mu.Unlock()
	for _, addr := range addrs {
		n.stop(addr)
	}
}

func (n *network) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	r := n.nodes[addr]
	n.mu.Unlock()
	if r == nil {
		return nil, fmt.Errorf("dialing %s: connection refused", addr)
	}
	return r.listener.DialContext(ctx)
}

// session is the coordinator's end of one session.
func (r *node) session(stream *fakeSlot) error {
	if r.answer != nil {
		return r.answer()
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	l := &leaderEnd{stream: stream, patience: r.patience, hello: first, in: make(chan *dtaskv1.SessionRequest, 10_000), end: make(chan error, 1), gone: make(chan struct{}), seen: map[uint64]reportedOutcome{}}
	go func() {
		defer close(l.in)
		for {
			m, err := stream.Recv()
			if err != nil {
				close(l.gone)
				return
			}
			l.in <- m
		}
	}()
	r.sessions <- l
	select {
	case err := <-l.end:
		return err
	case <-stream.ctx.Done():
		return nil
	}
}

// leaderEnd is one session as the test drives it.
type leaderEnd struct {
	stream   *fakeSlot
	hello    *dtaskv1.SessionRequest
	patience time.Duration                // see network
	in       chan *dtaskv1.SessionRequest // closed when the worker has left
	end      chan error                   // ends the session with this status
	gone     chan struct{}
	term     uint64
	seen     map[uint64]reportedOutcome // all outcomes that were read, by number
}

func (l *leaderEnd) send(t *testing.T, m *dtaskv1.SessionResponse) {
	t.Helper()
	if m.GetFence() == nil {
		m.Fence = &dtaskv1.Fence{ClusterId: cluster, Epoch: 1, Term: l.term}
	}
	if err := l.stream.Send(m); err != nil {
		t.Errorf("sending to the worker: %v", err)
	}
}

// welcome opens the session in this term.
func (l *leaderEnd) welcome(t *testing.T, term uint64) *leaderEnd {
	t.Helper()
	l.term = term
	liveness, lease := max(3*time.Second, l.patience), max(30*time.Second, l.patience)
	l.send(t, &dtaskv1.SessionResponse{Heartbeat: 1, Welcome: &dtaskv1.Welcome{
		WorkerId: 1, HeartbeatIntervalMs: 1000, LivenessTimeoutMs: liveness.Milliseconds(), LeaseMs: lease.Milliseconds(),
	}})
	return l
}

// next returns the worker's next message that satisfies a condition. It answers
// heartbeats meanwhile.
func (l *leaderEnd) next(t *testing.T, what string, holds func(*dtaskv1.SessionRequest) bool) *dtaskv1.SessionRequest {
	t.Helper()
	limit := time.Now().Add(time.Hour) // a worker that sends heartbeats forever would keep virtual time going
	for m := range l.in {
		if time.Now().After(limit) {
			t.Fatalf("the worker did not send %s", what)
		}
		l.answer(t, m)
		maps.Copy(l.seen, outcomesIn(m))
		if holds(m) {
			return m
		}
	}
	t.Fatalf("the worker left before it sent %s", what)
	return nil
}

func (l *leaderEnd) answer(t *testing.T, m *dtaskv1.SessionRequest) {
	t.Helper()
	if m.GetHeartbeat() != 0 {
		_ = l.stream.Send(&dtaskv1.SessionResponse{Fence: &dtaskv1.Fence{ClusterId: cluster, Epoch: 1, Term: l.term}, Heartbeat: m.GetHeartbeat()})
	}
}

// outcomes receives n outcomes, by number.
func (l *leaderEnd) outcomes(t *testing.T, n int) map[uint64]reportedOutcome {
	t.Helper()
	got := map[uint64]reportedOutcome{}
	for len(got) < n {
		m := l.next(t, fmt.Sprintf("%d outcomes", n), func(m *dtaskv1.SessionRequest) bool { return m.GetReports().GetOutcomes() != nil })
		maps.Copy(got, outcomesIn(m))
	}
	return got
}

// awaitAttempt waits until the worker has received an attempt.
func (b *harness) awaitAttempt(r ref) {
	b.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 120_000 {
		b.worker.attempts.mu.Lock()
		known := b.worker.attempts.known[r] != nil
		b.worker.attempts.mu.Unlock()
		if known {
			return
		}
		<-tick.C
	}
	b.t.Fatalf("attempt %v did not arrive", r)
}

// awaitOutcomes waits until n outcomes have arrived since the start.
func (l *leaderEnd) awaitOutcomes(t *testing.T, n int) {
	t.Helper()
	for len(l.seen) < n {
		l.outcomes(t, 1)
	}
}

// outcome receives the next outcome.
func (l *leaderEnd) outcome(t *testing.T) reportedOutcome {
	t.Helper()
	for _, o := range l.outcomes(t, 1) {
		return o
	}
	return reportedOutcome{}
}

// serveTillEnd answers heartbeats and acknowledges outcomes until the worker has
// left.
func (l *leaderEnd) serveTillEnd(t *testing.T) {
	t.Helper()
	_ = l.stream.Send(&dtaskv1.SessionResponse{Fence: &dtaskv1.Fence{ClusterId: cluster, Epoch: 1, Term: l.term}, Ack: &dtaskv1.Ack{Through: uint64(len(l.seen))}})
	for m := range l.in {
		l.answer(t, m)
		if n := len(m.GetReports().GetOutcomes().GetTasks()); n > 0 {
			_ = l.stream.Send(&dtaskv1.SessionResponse{
				Fence: &dtaskv1.Fence{ClusterId: cluster, Epoch: 1, Term: l.term},
				Ack:   &dtaskv1.Ack{Through: m.GetReports().GetOutcomes().GetFirst() + uint64(n) - 1},
			})
		}
	}
}

// encoded returns a body in the form in which coordinators send it.
func encoded(body *dtaskv1.TaskBody) []byte {
	raw, err := proto.Marshal(body)
	if err != nil {
		panic(err)
	}
	return raw
}

// work is one task to assign.
type work struct {
	task    uint32
	typ     string
	body    *dtaskv1.TaskBody
	policy  *dtaskv1.TaskPolicy
	attempt uint32 // 0: the first
	from    *dtaskv1.Checkpoint
}

// assign sends tasks of job 7.
func (l *leaderEnd) assign(t *testing.T, tasks ...work) {
	t.Helper()
	l.send(t, &dtaskv1.SessionResponse{Assignments: assignments(tasks...)})
}

func assignments(tasks ...work) *dtaskv1.Assignments {
	shared := &dtaskv1.JobContext{Job: 7, JobName: "seven", Env: map[string]string{"FROM_JOB": "yes"}}
	m := columns.NewAssignments(len(tasks))
	m.Contexts = []*dtaskv1.JobContext{shared}
	for i, w := range tasks {
		policy := w.policy
		if policy == nil {
			policy = &dtaskv1.TaskPolicy{TimeoutMs: 3_600_000}
		}
		policy.Type = w.typ
		shared.Policies = append(shared.Policies, policy)
		attempt := w.attempt
		if attempt == 0 {
			attempt = 1
		}
		row := columns.Assignment{Policy: uint32(i), Task: w.task, Attempt: attempt, ID: fmt.Sprintf("t%d", w.task), Body: encoded(w.body)}
		if w.from != nil {
			row.Extras = &dtaskv1.AssignmentExtras{Checkpoint: w.from}
		}
		columns.AddAssignment(m, &row)
	}
	return m
}

func attemptOf(task uint32) *dtaskv1.AttemptRef {
	return &dtaskv1.AttemptRef{Job: 7, Task: task, Attempt: 1}
}

// refused returns a status with a detail, as coordinators send it.
func refused(code codes.Code, detail *dtaskv1.ErrorDetail) error {
	st, err := status.New(code, "refused").WithDetails(detail)
	if err != nil {
		return err
	}
	return st.Err()
}

// logBuffer is a log that tests can read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *logBuffer) has(part string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.b.String(), part)
}

func (b *logBuffer) count(part string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.b.String(), part)
}

// bench is a worker on a network.
type harness struct {
	*network
	worker *Worker
	logs   *logBuffer
	drain  context.CancelFunc
	done   chan error
}

// start runs a worker with these handlers; the test ends it with finish.
func start(t *testing.T, n *network, cfg Config, handlers map[string]Handler) *harness {
	t.Helper()
	if cfg.Join == nil {
		cfg.Join = []string{"n1:1"}
	}
	cfg.Name, cfg.WorkDir = "w1", cmp.Or(cfg.WorkDir, t.TempDir())
	b := &harness{network: n, logs: &logBuffer{}, done: make(chan error, 1)}
	w, err := New(cfg, WithDialer(n.dial), WithLogger(slog.New(slog.NewTextHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range handlers {
		w.Handle(name, h)
	}
	b.run(t, w)
	return b
}

// run runs the worker of a harness.
func (b *harness) run(t *testing.T, w *Worker) {
	t.Helper()
	b.worker = w
	w.liveness = max(w.liveness, b.patience)
	ctx, cancel := context.WithCancel(t.Context())
	b.drain = cancel
	go func() { b.done <- w.Run(ctx) }()
}

// finish ends the worker and the replicas.
func (b *harness) finish() {
	b.drain()
	b.stopAll()
	<-b.done
}

// inBubble runs a test in virtual time with one open session.
func inBubble(t *testing.T, cfg Config, handlers map[string]Handler, test func(b *harness, l *leaderEnd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		if cfg.DrainTimeout == 0 {
			cfg.DrainTimeout = -1
		}
		b := start(t, n, cfg, handlers)
		defer b.finish()
		test(b, (<-r.sessions).welcome(t, 1))
	})
}

// blocks is a handler that runs until its context is done.
func blocks(ctx context.Context, _ *Task) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func returns(_ context.Context, t *Task) ([]byte, error) { return t.Payload, nil }
