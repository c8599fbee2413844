package notify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A cluster is a state machine with a log that only the test writes.
type cluster struct {
	t       *testing.T
	machine *fsm.Machine
	wake    chan struct{}

	mu       sync.Mutex
	index    uint64
	deny     error // of RecordDelivered
	recorded []fsm.Delivery
	wall     time.Time // stamps entries
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, machine: fsm.NewMachine(), wake: make(chan struct{}, 1), wall: time.Now()}
	c.do(&fsm.SetClusterID{ID: "00112233445566778899aabbccddeeff"}, &fsm.RegisterWorker{ID: 1, Name: "w1", Incarnation: "i", Slots: 9})
	return c
}

// do applies operations as one entry.
func (c *cluster) do(ops ...fsm.Op) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.apply(ops...)
}

func (c *cluster) apply(ops ...fsm.Op) {
	c.t.Helper()
	c.index++
	got := c.machine.Apply(c.index, fsm.Encode(nil, fsm.Entry{NowMS: time.Now().UnixMilli(), Ops: ops}))
	if a, ok := got.(fsm.Applied); !ok || a.Rejected != fsm.Accepted {
		c.t.Fatalf("%T was rejected: %+v", ops[0], got)
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// RecordDelivered implements Recorder.
func (c *cluster) RecordDelivered(_ context.Context, items []fsm.Delivery) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deny != nil {
		return c.deny
	}
	c.apply(&fsm.RecordDelivered{Items: items})
	c.recorded = append(c.recorded, items...)
	return nil
}

// refuse sets the error of RecordDelivered; nil = it succeeds.
func (c *cluster) refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deny = err
}

// outcomes returns how many notifications were recorded as delivered and dropped.
func (c *cluster) outcomes() (delivered, dropped int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, it := range c.recorded {
		if it.Delivered {
			delivered++
		} else {
			dropped++
		}
	}
	return delivered, dropped
}

// await waits until a number of outcomes is recorded.
func (c *cluster) await(outcomes int) {
	c.t.Helper()
	for {
		index := c.machine.Index()
		if delivered, dropped := c.outcomes(); delivered+dropped >= outcomes {
			return
		}
		if err := c.machine.Await(c.t.Context(), index+1); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) left() int {
	n := 0
	c.machine.Read(func(st *fsm.State, _ uint64) { n = st.NotificationCount() })
	return n
}

// begin stores a job with one task, which is assigned to worker 1.
func (c *cluster) begin(webhook string) fsm.HeldAttempt {
	c.t.Helper()
	header := &dtaskv1.JobHeader{
		Name: "nightly", Owner: "data", Priority: dtaskv1.Priority_PRIORITY_HIGH, Webhook: webhook,
		Policies: []*dtaskv1.TaskPolicy{{TimeoutMs: 1000}},
	}
	body := marshal(c.t, &dtaskv1.TaskBody{Run: "false", Payload: []byte(`{"n": 1, "text": "<é>"}`)})
	b := fsm.NewChunkBuilder(0)
	b.Add("fetch", 0, nil, body)
	chunk := b.Chunk()
	var id fsm.JobID
	c.machine.Read(func(st *fsm.State, _ uint64) { id = st.NextJob() })
	h := fsm.HeldAttempt{AttemptRef: fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: id}, Attempt: 1}, Worker: 1}
	c.do(
		&fsm.BeginUpload{ID: id, Key: fmt.Sprint(id), Header: marshal(c.t, header), Total: 1},
		&fsm.AddChunk{Job: id, Chunk: chunk}, &fsm.SealUpload{Job: id, Sum: chunk.Sum(0)},
		&fsm.Assign{Items: []fsm.AssignItem{fsm.AssignItem(h)}},
	)
	return h
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// end completes a job with a webhook, which queues a notification.
func (c *cluster) end(webhook string) fsm.JobID {
	c.t.Helper()
	h := c.begin(webhook)
	c.do(&fsm.Complete{Items: []fsm.CompleteItem{{HeldAttempt: h, DurationMS: 5}}})
	return h.Job
}

// die makes a dead letter with notifications of the given kinds.
func (c *cluster) die(kinds ...fsm.NotificationKind) fsm.JobID {
	c.t.Helper()
	h := c.begin("")
	o := new(fsm.NotifyDeadLetters)
	for _, k := range kinds {
		o.Items = append(o.Items, fsm.DeadLetterNotification{Task: h.TaskRef, Kind: k})
	}
	c.do(&fsm.Fail{Items: []fsm.FailItem{{HeldAttempt: h, DurationMS: 5, Next: fsm.NextDead, Error: "exit code 1: <oops>"}}}, o)
	return h.Job
}

// lead starts a term, and returns its totals and a function that ends it.
func (c *cluster) lead(n *pipes, change func(*Config)) (totals *Totals, stop func()) {
	c.t.Helper()
	totals = new(Totals)
	cfg := Config{
		Machine: c.machine, Recorder: c, Job: api.JobView, DeadLetter: api.DeadLetterView, Wake: c.wake, Version: "0.9", Totals: totals, Logger: slog.New(slog.DiscardHandler), Seed: 7,
	}
	if n != nil {
		cfg.Dial = n.dial
	}
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithCancelCause(c.t.Context())
	termEnded := errors.New("term ended")
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel(termEnded)
			if err := <-done; !errors.Is(err, termEnded) && c.t.Context().Err() == nil {
				c.t.Errorf("Run returned %v, want the cause of its context", err)
			}
		})
	}
	c.t.Cleanup(stop)
	return totals, stop
}

// A logged writer sends lines of the log to a channel.
type logged struct{ lines chan string }

func (l logged) Write(p []byte) (int, error) {
	l.lines <- string(p)
	return len(p), nil
}

// pipes is an in-memory network of receivers by host name, with real HTTP, that works
// in a synctest bubble.
type pipes struct {
	t  *testing.T
	mu sync.Mutex
	m  map[string]chan net.Conn
}

func newPipes(t *testing.T) *pipes {
	t.Helper()
	return &pipes{t: t, m: make(map[string]chan net.Conn)}
}

func (p *pipes) dial(ctx context.Context, _, address string) (net.Conn, error) {
	p.mu.Lock()
	to := p.m[address]
	p.mu.Unlock()
	if to == nil {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	select {
	case to <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A listener accepts the connections of one receiver.
type listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

// serve starts a receiver.
func (p *pipes) serve(host string, handler http.HandlerFunc) {
	p.t.Helper()
	l := &listener{conns: make(chan net.Conn), done: make(chan struct{})}
	p.mu.Lock()
	p.m[host+":80"] = l.conns
	p.mu.Unlock()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Hour, ErrorLog: nil}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	p.t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
}

// A received request.
type received struct {
	at      time.Time
	url, id string
	header  http.Header
	body    string
}

// An inbox collects requests. It is safe for concurrent use.
type inbox struct {
	mu  sync.Mutex
	got []received
}

// take stores a request and returns the number of earlier ones.
func (b *inbox) take(r *http.Request) int {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, received{at: time.Now(), url: r.URL.String(), id: r.Header.Get("webhook-id"), header: r.Header, body: string(body)})
	return len(b.got) - 1
}

func (b *inbox) all() []received {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]received(nil), b.got...)
}

// answering is a receiver that responds with the codes in turn, and then always with
// the last one.
func (b *inbox) answering(codes ...int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n := b.take(r)
		w.WriteHeader(codes[min(n, len(codes)-1)])
	}
}

// hang is a receiver that never responds. It reads the request, because a server
// notices only then that its client has disconnected.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}
