package load

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/internal/sendqueue"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxFrames bounds one message.
const maxFrames = 4096

// muxStream is a multiplexed stream: it carries the sessions of all workers of
// a connection, or of one worker.
type muxStream struct {
	l      *Load
	stream dtaskv1.WorkerService_SessionsClient
	cancel context.CancelFunc
	// out holds the sessions with something to send, and the numbers of those
	// that were left.
	out *sendqueue.Queue[*session, uint32, dtaskv1.SessionsRequest]

	mu       sync.Mutex // guards the rest
	last     uint32
	sessions map[uint32]*session
	err      error // why it ended; nil while it is open
}

// mux returns the stream that the workers of a connection share. It is opened
// with first use, and after it has ended.
func (c *shared) mux(ctx context.Context, l *Load) (*muxStream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream != nil && c.stream.isOpen() {
		return c.stream, nil
	}
	var err error
	c.stream, err = openMuxStream(ctx, l, c)
	return c.stream, err
}

func openMuxStream(ctx context.Context, l *Load, conn *shared) (*muxStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := dtaskv1.NewWorkerServiceClient(conn).Sessions(ctx)
	if err != nil {
		cancel()
		return nil, err //nolint:wrapcheck // read by the caller
	}
	m := &muxStream{
		l: l, stream: stream, cancel: cancel, sessions: make(map[uint32]*session),
		out: sendqueue.New[*session, uint32, dtaskv1.SessionsRequest](),
	}
	l.streams.Go(m.receive)
	l.streams.Go(func() { m.send(ctx) })
	return m, nil
}

func (c *muxStream) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil
}

// add starts a session. Its first message is the hello.
func (c *muxStream) add(s *session) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		s.end(c.err)
		return
	}
	c.last++
	s.number = c.last
	c.sessions[s.number] = s
	s.queued.Store(true)
	c.out.Add(s) // under the lock: sessions must be sent in the order of their numbers
	c.mu.Unlock()
}

// leave ends a session from this side.
func (c *muxStream) leave(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.sessions[s.number]; open {
		delete(c.sessions, s.number)
		c.out.AddItem(s.number)
	}
}

// queue adds a session to those that are polled for the next message.
func (c *muxStream) queue(s *session) {
	if !s.queued.Swap(true) {
		c.out.Add(s)
	}
}

// receive delivers messages to the workers until the stream ends.
func (c *muxStream) receive() {
	for {
		m, err := c.stream.Recv()
		if err != nil {
			c.end(err)
			return
		}
		c.l.counts.received.Add(1)
		for _, f := range m.GetFrames() {
			c.mu.Lock()
			s := c.sessions[f.GetSession()]
			if s != nil && f.GetEnd() != nil {
				delete(c.sessions, f.GetSession())
			}
			c.mu.Unlock()
			switch {
			case s == nil: // the session was left
			case f.GetEnd() != nil:
				s.end(errorOf(f.GetEnd()))
			default:
				if err := s.w.handle(s, f.GetMessage()); err != nil {
					s.end(err)
				}
			}
		}
	}
}

// errorOf returns the error that a session ended with; io.EOF if it has no
// error.
func errorOf(end *dtaskv1.SessionEnd) error {
	if codes.Code(end.GetCode()) == codes.OK {
		return io.EOF
	}
	st := status.New(codes.Code(end.GetCode()), end.GetMessage())
	if d := end.GetDetail(); d != nil {
		if with, err := st.WithDetails(d); err == nil {
			st = with
		}
	}
	return st.Err() //nolint:wrapcheck // read by the caller
}

// end ends all sessions with the stream.
func (c *muxStream) end(err error) {
	c.mu.Lock()
	c.err = err
	sessions := c.sessions
	c.sessions = nil
	c.mu.Unlock()
	c.cancel()
	for _, s := range sessions {
		s.end(err)
	}
}

// send sends the sessions' messages until the stream ends.
func (c *muxStream) send(ctx context.Context) {
	err := c.out.Run(ctx, pack, func(m *dtaskv1.SessionsRequest) error {
		c.l.counts.sent.Add(1)
		return c.stream.Send(m)
	})
	if err != nil && !errors.Is(err, io.EOF) { // at EOF, receive returns the reason
		c.end(err)
	}
}

// pack builds a message with one frame of each session.
func pack(polled []*session, ends []uint32) (m *dtaskv1.SessionsRequest, turns int) {
	m = &dtaskv1.SessionsRequest{}
	turns = min(len(polled), maxFrames)
	for _, s := range polled[:turns] {
		s.queued.Store(false) // before next: data that is added from now on queues the session again
		if part := s.w.next(s); part != nil {
			m.Frames = append(m.Frames, &dtaskv1.RequestFrame{Session: s.number, Message: part})
		}
	}
	for _, number := range ends {
		m.Frames = append(m.Frames, &dtaskv1.RequestFrame{Session: number, End: true})
	}
	if len(m.GetFrames()) == 0 {
		return nil, turns
	}
	return m, turns
}
