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

// way is how the sessions of a test use streams.
type way bool

const (
	alone  way = false // one stream per session
	shared way = true  // one stream for all
)

// ways lists all ways.
var ways = []way{alone, shared}

// String names the tests.
func (by way) String() string {
	if by == shared {
		return "shared stream"
	}
	return "own stream"
}

// house is a leader whose workers use streams in this way.
func (by way) house(t *testing.T, change ...func(*session.Config)) *house {
	t.Helper()
	h := newHouse(t, change...)
	h.shared = bool(by)
	return h
}

// workerStream is the workers' end of a stream.
type workerStream struct {
	stream dtaskv1.WorkerService_SessionsClient
	cancel context.CancelFunc

	mu       sync.Mutex // guards the rest, and Send
	last     uint32
	sessions map[uint32]*workerSession
}

// workerSession is a session of a workerStream.
type workerSession struct {
	b      *workerStream
	number uint32
	come   *sync.Cond // of the workerStream
	in     []*dtaskv1.SessionResponse
	end    error
}

// openStream opens a stream.
func (h *house) openStream() *workerStream {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := dtaskv1.NewWorkerServiceClient(h.conn).Sessions(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	b := &workerStream{stream: stream, cancel: cancel, sessions: make(map[uint32]*workerSession)}
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

func (b *workerStream) receive() {
	for {
		m, err := b.stream.Recv()
		b.mu.Lock()
		for _, f := range m.GetFrames() {
			x := b.sessions[f.GetSession()]
			if f.GetMessage() != nil {
				x.in = append(x.in, f.GetMessage())
			}
			if f.GetEnd() != nil {
				x.end = endOf(f.GetEnd())
			}
			x.come.Broadcast()
		}
		for _, x := range b.sessions {
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

// open returns a session, which starts with its first message.
func (b *workerStream) open() *workerSession {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	x := &workerSession{b: b, number: b.last, come: sync.NewCond(&b.mu)}
	b.sessions[x.number] = x
	return x
}

func (b *workerStream) send(frames ...*dtaskv1.RequestFrame) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stream.Send(&dtaskv1.SessionsRequest{Frames: frames})
}

func (x *workerSession) Send(m *dtaskv1.SessionRequest) error {
	return x.b.send(&dtaskv1.RequestFrame{Session: x.number, Message: m})
}

func (x *workerSession) CloseSend() error {
	return x.b.send(&dtaskv1.RequestFrame{Session: x.number, End: true})
}

func (x *workerSession) Recv() (*dtaskv1.SessionResponse, error) {
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

// leave ends the session from this side, and unblocks Recv.
func (x *workerSession) leave() {
	_ = x.CloseSend() // fails only if the stream has ended
	x.b.mu.Lock()
	defer x.b.mu.Unlock()
	if x.end == nil {
		x.end = context.Canceled
	}
	x.come.Broadcast()
}
