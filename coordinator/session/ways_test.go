package session_test

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/coordinator/session"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// way is how the sessions of a test reach the leader.
type way bool

const (
	alone  way = false // a stream each
	shared way = true  // one stream for all
)

// ways are all of them.
var ways = []way{alone, shared}

// String names the tests.
func (by way) String() string {
	if by == shared {
		return "in one stream"
	}
	return "in a stream each"
}

// house is a leader whose workers come this way.
func (by way) house(t *testing.T, change ...func(*session.Config)) *house {
	t.Helper()
	h := newHouse(t, change...)
	h.shared = bool(by)
	return h
}

// line is a worker's end of a session.
type line interface {
	Send(m *dtaskv1.SessionRequest) error
	Recv() (*dtaskv1.SessionResponse, error)
	CloseSend() error
}

// bus is the workers' end of a stream that they share.
type bus struct {
	stream dtaskv1.WorkerService_SessionsClient
	cancel context.CancelFunc

	mu    sync.Mutex // guards the rest, and Send
	last  uint32
	lines map[uint32]*shareOf
}

// shareOf is a session in it.
type shareOf struct {
	b      *bus
	number uint32
	come   *sync.Cond // of the bus
	in     []*dtaskv1.SessionResponse
	end    error
}

// bus makes a stream that sessions share.
func (h *house) bus() *bus {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := dtaskv1.NewWorkerServiceClient(h.conn).Sessions(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	b := &bus{stream: stream, cancel: cancel, lines: make(map[uint32]*shareOf)}
	received := make(chan struct{})
	go func() {
		defer close(received)
		b.receive()
	}()
	h.t.Cleanup(func() {
		cancel()
		<-received
	})
	return b
}

func (b *bus) receive() {
	for {
		m, err := b.stream.Recv()
		b.mu.Lock()
		for _, f := range m.GetFrames() {
			x := b.lines[f.GetSession()]
			if f.GetMessage() != nil {
				x.in = append(x.in, f.GetMessage())
			}
			if f.GetEnd() != nil {
				x.end = endOf(f.GetEnd())
			}
			x.come.Broadcast()
		}
		for _, x := range b.lines {
			if err != nil && x.end == nil {
				x.end = err
				x.come.Broadcast()
			}
		}
		b.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func endOf(end *dtaskv1.SessionEnd) error {
	if codes.Code(end.GetCode()) == codes.OK {
		return io.EOF
	}
	return status.Error(codes.Code(end.GetCode()), end.GetMessage())
}

// open begins a session with what it says first.
func (b *bus) open() *shareOf {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	x := &shareOf{b: b, number: b.last, come: sync.NewCond(&b.mu)}
	b.lines[x.number] = x
	return x
}

func (b *bus) send(frames ...*dtaskv1.RequestFrame) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stream.Send(&dtaskv1.SessionsRequest{Frames: frames})
}

func (x *shareOf) Send(m *dtaskv1.SessionRequest) error {
	return x.b.send(&dtaskv1.RequestFrame{Session: x.number, Message: m})
}

func (x *shareOf) CloseSend() error {
	return x.b.send(&dtaskv1.RequestFrame{Session: x.number, End: true})
}

func (x *shareOf) Recv() (*dtaskv1.SessionResponse, error) {
	x.b.mu.Lock()
	defer x.b.mu.Unlock()
	for len(x.in) == 0 && x.end == nil {
		x.come.Wait()
	}
	if len(x.in) == 0 {
		return nil, x.end
	}
	m := x.in[0]
	x.in = slices.Delete(x.in, 0, 1)
	return m, nil
}

// leave ends the session from here, also for who receives.
func (x *shareOf) leave() {
	_ = x.CloseSend() // then the stream has ended, which is as good
	x.b.mu.Lock()
	defer x.b.mu.Unlock()
	if x.end == nil {
		x.end = context.Canceled
	}
	x.come.Broadcast()
}
