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

// framesAtOnce bounds one message.
const framesAtOnce = 4096

// carrier is a stream that has the sessions of all workers of a connection.
type carrier struct {
	l      *Load
	stream dtaskv1.WorkerService_SessionsClient
	cancel context.CancelFunc
	// out has the sessions that have something to say, and the numbers of those that were left.
	out *sendqueue.Queue[*session, uint32, dtaskv1.SessionsRequest]

	mu    sync.Mutex // guards the rest
	last  uint32
	lanes map[uint32]*session
	over  error // why it has ended; nil while it has not
}

// carrier gives the stream of a connection, which is made with first use and when
// the last one has ended.
func (c *shared) carrier(ctx context.Context, l *Load) (*carrier, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.carries != nil && c.carries.lives() {
		return c.carries, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := dtaskv1.NewWorkerServiceClient(c).Sessions(ctx)
	if err != nil {
		cancel()
		return nil, err //nolint:wrapcheck // looked into by the caller
	}
	c.carries = &carrier{
		l: l, stream: stream, cancel: cancel, lanes: make(map[uint32]*session),
		out: sendqueue.New[*session, uint32, dtaskv1.SessionsRequest](),
	}
	l.carriers.Go(c.carries.receive)
	l.carriers.Go(func() { c.carries.send(ctx) })
	return c.carries, nil
}

func (c *carrier) lives() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over == nil
}

// add begins a session, whose hello is what it has to say first.
func (c *carrier) add(s *session) {
	c.mu.Lock()
	if c.over != nil {
		c.mu.Unlock()
		s.end(c.over)
		return
	}
	c.last++
	s.number = c.last
	c.lanes[s.number] = s
	s.queued.Store(true)
	c.out.Add(s) // under the lock: who has a lower number speaks before
	c.mu.Unlock()
}

// leave ends a session from here.
func (c *carrier) leave(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.lanes[s.number]; open {
		delete(c.lanes, s.number)
		c.out.AddItem(s.number)
	}
}

// ask puts a session among those that say what they have.
func (c *carrier) ask(s *session) {
	if !s.queued.Swap(true) {
		c.out.Add(s)
	}
}

// receive hands what comes to the workers until the stream ends.
func (c *carrier) receive() {
	for {
		m, err := c.stream.Recv()
		if err != nil {
			c.end(err)
			return
		}
		c.l.counts.received.Add(1)
		for _, f := range m.GetFrames() {
			c.mu.Lock()
			s := c.lanes[f.GetSession()]
			if s != nil && f.GetEnd() != nil {
				delete(c.lanes, f.GetSession())
			}
			c.mu.Unlock()
			switch {
			case s == nil: // it was left
			case f.GetEnd() != nil:
				s.end(errorOf(f.GetEnd()))
			default:
				if err := s.w.hear(s, f.GetMessage()); err != nil {
					s.end(err)
				}
			}
		}
	}
}

// errorOf is the error with which a stream of its own would have ended.
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
	return st.Err() //nolint:wrapcheck // looked into by the caller
}

// end ends all sessions with the stream.
func (c *carrier) end(err error) {
	c.mu.Lock()
	c.over = err
	lanes := c.lanes
	c.lanes = nil
	c.mu.Unlock()
	c.cancel()
	for _, s := range lanes {
		s.end(err)
	}
}

// send sends what the workers have to say.
func (c *carrier) send(ctx context.Context) {
	err := c.out.Run(ctx, pack, func(m *dtaskv1.SessionsRequest) error {
		c.l.counts.sent.Add(1)
		return c.stream.Send(m)
	})
	if err != nil && !errors.Is(err, io.EOF) { // EOF: receive hears why
		c.end(err)
	}
}

// pack makes a message of what the workers have to say.
func pack(asked []*session, ends []uint32) (m *dtaskv1.SessionsRequest, turns int) {
	m = &dtaskv1.SessionsRequest{}
	turns = min(len(asked), framesAtOnce)
	for _, s := range asked[:turns] {
		s.queued.Store(false) // before it is asked: what it has to say afterwards is asked for again
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
