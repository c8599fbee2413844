package session_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/coordinator/session"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/leak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(leak.Patient{M: m}) }

// memoryLog is a log without Raft that applies entries immediately.
type memoryLog struct {
	machine *fsm.Machine
	mu      sync.Mutex
	index   uint64
	lost    bool
}

type entry struct {
	response any
	index    uint64
	err      error
}

func (e entry) Wait() (any, uint64, error) { return e.response, e.index, e.err }

var errLost = errors.New("leadership lost")

func (l *memoryLog) Propose(data []byte) sequencer.Proposal {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost {
		return entry{err: errLost}
	}
	l.index++
	return entry{response: l.machine.Apply(l.index, data), index: l.index}
}

// house is a leader with a session service, over a connection in memory.
type house struct {
	t       *testing.T
	machine *fsm.Machine
	log     *memoryLog
	term    atomic.Pointer[sequencer.Sequencer]
	end     func() // ends the term and waits
	service *session.Service
	conn    *grpc.ClientConn
	ended   chan error // why sessions ended
	shared  bool       // the sessions share a stream
	once    sync.Once
	stream  *workerStream // the shared stream
}

func newHouse(t *testing.T, change ...func(*session.Config)) *house {
	t.Helper()
	m := fsm.NewMachine()
	h := &house{t: t, machine: m, log: &memoryLog{machine: m}, ended: make(chan error, 1024)}
	cfg := session.Config{
		Current: func() session.Leader {
			if s := h.term.Load(); s != nil {
				return s
			}
			return nil
		},
		Machine: m, Logger: slog.New(slog.DiscardHandler),
		Guard: func(ctx context.Context, call func() error) error {
			over := ctx.Err() != nil // before the call: a session that opens may end at any time
			err := call()
			if err != nil || over { // otherwise it is open now
				h.ended <- err
			}
			return err
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	h.service = session.New(cfg)
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	dtaskv1.RegisterWorkerServiceServer(server, h.service)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // ends with Stop
	}()
	conn, err := grpc.NewClient("passthrough:memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		t.Fatal(err)
	}
	h.conn = conn
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-served
	})
	return h
}

// lead starts a term.
func (h *house) lead(number uint64) *sequencer.Sequencer {
	h.t.Helper()
	s, err := sequencer.New(sequencer.Config{
		ServerID: "n1", Instance: "i1", Term: number, Log: h.log, Machine: h.machine,
		Logger: slog.New(slog.DiscardHandler), NewClusterID: func() string { return cluster },
		LivenessTimeout: time.Hour, // peers send no heartbeats by themselves
	})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = s.Run(ctx) // returns why it ended
	}()
	h.end = func() {
		h.term.Store(nil)
		cancel()
		<-over
	}
	h.t.Cleanup(h.end)
	h.term.Store(s)
	<-s.Ready()
	return s
}

var cluster = fmt.Sprintf("%032d", 1)

// submit stores a job of n tasks with bodies of a size.
func (h *house) submit(key string, n, size int, header *dtaskv1.JobHeader) fsm.JobID {
	h.t.Helper()
	if header == nil {
		header = &dtaskv1.JobHeader{Name: key}
	}
	if len(header.GetPolicies()) == 0 {
		header.Policies = []*dtaskv1.TaskPolicy{{Type: "x", TimeoutMs: 60_000}}
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(header)
	if err != nil {
		h.t.Fatal(err)
	}
	body, err := proto.Marshal(&dtaskv1.TaskBody{Payload: make([]byte, size)})
	if err != nil {
		h.t.Fatal(err)
	}
	sub := sequencer.Submission{Key: key, Header: raw, Total: uint32(n)}
	for i := 0; i < n; {
		b := fsm.NewChunkBuilder(uint32(i))
		for ; i < n && b.Size() < 64<<10; i++ {
			policy := uint32(0)
			if i == n-1 { // the last task has the last policy
				policy = uint32(len(header.GetPolicies()) - 1)
			}
			b.Add(fmt.Sprintf("t%d", i), policy, nil, body)
		}
		c := b.Chunk()
		sub.Sum = c.Sum(sub.Sum)
		sub.Chunks = append(sub.Chunks, c)
	}
	r := h.term.Load().SubmitMany(h.t.Context(), []sequencer.Submission{sub})[0]
	if r.Err != nil {
		h.t.Fatalf("submit: %v", r.Err)
	}
	return r.ID
}

func (h *house) task(id fsm.JobID, i uint32) fsm.Task {
	var v fsm.Task
	h.machine.Read(func(s *fsm.State, _ uint64) { v, _ = s.Task(fsm.TaskRef{Job: id, Index: i}) })
	return v
}

// worker returns the status of an attached worker, however long the sequencer takes to
// answer.
func (h *house) worker(s *sequencer.Sequencer, id fsm.WorkerID) sequencer.WorkerStatus {
	h.t.Helper()
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if list := s.Workers(); list != nil { // otherwise it is busy
			return list[id]
		}
	}
	h.t.Fatalf("the status of worker %d: timed out", id)
	return sequencer.WorkerStatus{}
}

// await waits until the state machine satisfies a condition.
func (h *house) await(what string, ok func() bool) {
	h.t.Helper()
	guard := time.NewTimer(5 * time.Minute)
	defer guard.Stop()
	for {
		index := h.machine.Index()
		if ok() {
			return
		}
		select {
		case <-h.machine.Changed(index):
		case <-guard.C:
			h.t.Fatalf("waiting for %s: timed out", what)
		}
	}
}

// result returns the error of the next session that ends.
func (h *house) result() error {
	h.t.Helper()
	select {
	case err := <-h.ended:
		return err
	case <-time.After(5 * time.Minute):
		h.t.Fatal("no session ended")
		return nil
	}
}

// peer is a worker's end of a session.
type peer struct {
	t      *testing.T
	stream *workerSession
	cancel context.CancelFunc
	seen   []*dtaskv1.SessionResponse
}

func (h *house) dial() *peer {
	h.t.Helper()
	if !h.shared {
		s := h.openStream()
		return &peer{t: h.t, stream: s.open(), cancel: s.cancel}
	}
	h.once.Do(func() { h.stream = h.openStream() })
	x := h.stream.open()
	return &peer{t: h.t, stream: x, cancel: x.leave}
}

// join opens a session and waits for its welcome.
func (h *house) join(hello *dtaskv1.Hello) *peer {
	h.t.Helper()
	p := h.dial()
	p.say(&dtaskv1.SessionRequest{Hello: hello})
	p.next("welcome", func(m *dtaskv1.SessionResponse) bool { return m.GetWelcome() != nil })
	return p
}

func helloOf(name string, slots uint32, held ...*dtaskv1.AttemptRef) *dtaskv1.Hello {
	return &dtaskv1.Hello{Name: name, Incarnation: name + "1", Slots: slots, Held: held}
}

func (p *peer) say(m *dtaskv1.SessionRequest) {
	p.t.Helper()
	if err := p.stream.Send(m); err != nil && !errors.Is(err, io.EOF) { // at EOF, Recv returns the reason
		p.t.Fatalf("sending: %v", err)
	}
}

// next receives until a message satisfies a condition, and returns that
// message.
func (p *peer) next(what string, ok func(*dtaskv1.SessionResponse) bool) *dtaskv1.SessionResponse {
	p.t.Helper()
	guard := time.AfterFunc(5*time.Minute, p.cancel)
	defer guard.Stop()
	for {
		m, err := p.stream.Recv()
		if err != nil {
			p.t.Fatalf("waiting for %s: %v", what, err)
		}
		p.seen = append(p.seen, m)
		if ok(m) {
			return m
		}
	}
}

// end receives until the session ends, and returns its error.
func (p *peer) end() error {
	guard := time.AfterFunc(5*time.Minute, p.cancel)
	defer guard.Stop()
	for {
		m, err := p.stream.Recv()
		if err != nil {
			return err
		}
		p.seen = append(p.seen, m)
	}
}

// assigned receives until n attempts have been assigned in total, and returns
// them.
func (p *peer) assigned(n int) []*dtaskv1.AttemptRef {
	p.t.Helper()
	list := attempts(p.seen)
	for len(list) < n {
		m := p.next(fmt.Sprintf("%d assignments", n), func(m *dtaskv1.SessionResponse) bool { return m.GetAssignments() != nil })
		list = append(list, attempts([]*dtaskv1.SessionResponse{m})...)
	}
	return list
}

func attempts(messages []*dtaskv1.SessionResponse) []*dtaskv1.AttemptRef {
	var list []*dtaskv1.AttemptRef
	for _, m := range messages {
		for _, a := range rowsOf(m) {
			job := m.GetAssignments().GetContexts()[a.Context].GetJob()
			list = append(list, &dtaskv1.AttemptRef{Job: job, Task: a.Task, Attempt: a.Attempt})
		}
	}
	return list
}

// rowsOf returns the assignments in a message.
func rowsOf(m *dtaskv1.SessionResponse) []columns.Assignment {
	rows, err := columns.ReadAssignments(m.GetAssignments())
	if err != nil {
		panic(err)
	}
	var list []columns.Assignment
	for rows.Left() > 0 {
		list = append(list, rows.Next())
	}
	return list
}

// report reports the outcomes of attempts, numbered from first.
func (p *peer) report(first uint64, kind dtaskv1.OutcomeKind, list ...*dtaskv1.AttemptRef) {
	p.t.Helper()
	p.say(&dtaskv1.SessionRequest{Reports: &dtaskv1.Reports{Outcomes: outcomesOf(first, kind, list...)}})
}

func outcomesOf(first uint64, kind dtaskv1.OutcomeKind, list ...*dtaskv1.AttemptRef) *dtaskv1.Outcomes {
	m := columns.NewOutcomes(first, len(list))
	for _, a := range list {
		row := columns.Outcome{Job: a.GetJob(), Task: a.GetTask(), Attempt: a.GetAttempt()}
		if kind != succeeded {
			row.Detail = &dtaskv1.Outcome{Kind: kind}
		}
		columns.AddOutcome(m, &row)
	}
	return m
}
