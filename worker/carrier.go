package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/sendqueue"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// carrierBytes closes a message; a frame that is larger goes alone.
	carrierBytes = 256 << 10
	// mostUnread bounds the messages that came for a session and that it has not
	// taken. What the leader says is bounded by slots; a session takes it at once.
	mostUnread = 10_000
)

var (
	// errNoCarriers says that a coordinator is of a version that knows streams of one
	// session only.
	errNoCarriers = errors.New("worker: the coordinator does not know streams of many sessions")
	errUnread     = errors.New("worker: this session does not take what the leader says")
)

// stream is what a session says and hears: a stream of its own, or its part of a
// carrier.
type stream interface {
	Send(m *dtaskv1.SessionRequest) error
	Recv() (*dtaskv1.SessionResponse, error)
}

// carrier is one stream with the sessions of several workers.
type carrier struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup
	// out has the parts with a message to be sent, and the numbers of those that were left.
	out    *sendqueue.Queue[*part, uint32, dtaskv1.SessionsRequest]
	packed []*part // what the message on its way is of; out's own

	mu    sync.Mutex // guards the rest
	last  uint32
	parts map[uint32]*part
	over  error // why it has ended; nil while it has not
}

// part is one session's.
type part struct {
	c      *carrier
	ctx    context.Context //nolint:containedctx // the session's: a stream of its own has it, too
	number uint32          // 0 before it has said anything; set under the carrier's lock
	sent   chan struct{}   // size 1: out has been sent
	come   chan struct{}   // size 1: something has come, or the end

	// The carrier's lock guards these.
	out  *dtaskv1.SessionRequest
	in   []*dtaskv1.SessionResponse
	end  error
	left bool
}

// newCarrier opens a carrier. ctx gives what the call carries, not how long it lasts.
func newCarrier(ctx context.Context, conn grpc.ClientConnInterface) *carrier {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &carrier{cancel: cancel, out: sendqueue.New[*part, uint32, dtaskv1.SessionsRequest](), parts: make(map[uint32]*part)}
	c.ended.Go(func() {
		// It waits for the connection, and so for nobody's patience.
		stream, err := dtaskv1.NewWorkerServiceClient(conn).Sessions(ctx)
		if err != nil {
			c.finish(fmt.Errorf("opening a stream of many sessions: %w", err))
			return
		}
		c.ended.Go(func() { c.send(ctx, stream) })
		c.finish(c.receive(stream))
	})
	return c
}

// close ends it, and returns when nothing of it is left.
func (c *carrier) close() {
	c.cancel()
	c.ended.Wait()
}

func (c *carrier) lives() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over == nil
}

// finish ends all sessions with the stream.
func (c *carrier) finish(err error) {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = err
	for _, p := range c.parts {
		p.endLocked(err)
	}
	c.parts = nil
}

// open makes the part of a session. It begins with what it says first.
func (c *carrier) open(ctx context.Context) *part {
	return &part{c: c, ctx: ctx, sent: make(chan struct{}, 1), come: make(chan struct{}, 1)}
}

// leave ends a session from here. It says nothing from then on.
func (p *part) leave() {
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	p.left = true
	if _, open := c.parts[p.number]; open {
		delete(c.parts, p.number)
		c.out.AddItem(p.number)
	}
}

// Send returns when the message has been sent, so that what its session has to say
// meanwhile goes into the next.
func (p *part) Send(m *dtaskv1.SessionRequest) error {
	c := p.c
	c.mu.Lock()
	said := c.sayLocked(p, m)
	c.mu.Unlock()
	if !said {
		return io.EOF // Recv says why
	}
	select {
	case <-p.sent:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx) //nolint:wrapcheck // as a stream of its own
	}
}

// sayLocked puts a message among those to be sent, unless the session has ended. The
// first one gives the session its number: the other end takes a number that is not
// above all before it for that of a session that has ended.
func (c *carrier) sayLocked(p *part, m *dtaskv1.SessionRequest) (said bool) {
	if p.end == nil && c.over != nil {
		p.endLocked(c.over)
	}
	if p.end != nil || p.left {
		return false
	}
	if p.number == 0 {
		c.last++
		p.number = c.last
		c.parts[p.number] = p
	}
	p.out = m
	c.out.Add(p)
	return true
}

// Recv gives the next message that came for the session.
func (p *part) Recv() (*dtaskv1.SessionResponse, error) {
	for {
		if m, err := p.take(); m != nil || err != nil {
			return m, err
		}
		select {
		case <-p.come:
		case <-p.ctx.Done():
			return nil, context.Cause(p.ctx) //nolint:wrapcheck // as a stream of its own
		}
	}
}

// take gives what has come, or the end, or nothing.
func (p *part) take() (*dtaskv1.SessionResponse, error) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if len(p.in) == 0 {
		return nil, p.end
	}
	m := p.in[0]
	p.in[0] = nil
	if p.in = p.in[1:]; len(p.in) == 0 {
		p.in = nil
	}
	return m, nil
}

// endLocked ends a session from the other side.
func (p *part) endLocked(err error) {
	p.end = err
	signal(p.come)
	signal(p.sent) // whoever sends need not wait; Recv says why
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default: // a token is there already
	}
}

// receive hands what comes to its sessions until the stream ends, and gives the
// reason.
func (c *carrier) receive(stream dtaskv1.WorkerService_SessionsClient) error {
	for {
		m, err := stream.Recv()
		switch {
		case status.Code(err) == codes.Unimplemented:
			return errNoCarriers
		case err != nil:
			return err //nolint:wrapcheck // the session says what it was at
		}
		c.mu.Lock()
		for _, f := range m.GetFrames() {
			if p := c.parts[f.GetSession()]; p != nil { // else it was left
				c.takeLocked(p, f)
			}
		}
		c.mu.Unlock()
	}
}

// takeLocked hands one frame over.
func (c *carrier) takeLocked(p *part, f *dtaskv1.ResponseFrame) {
	switch {
	case f.GetEnd() != nil:
		delete(c.parts, p.number)
		p.endLocked(errorOf(f.GetEnd()))
	case len(p.in) >= mostUnread:
		delete(c.parts, p.number)
		c.out.AddItem(p.number)
		p.endLocked(errUnread)
	case f.GetMessage() != nil:
		p.in = append(p.in, f.GetMessage())
		signal(p.come)
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
	return st.Err() //nolint:wrapcheck // as a stream of its own
}

// send sends what the sessions have to say, until the stream ends.
func (c *carrier) send(ctx context.Context, stream dtaskv1.WorkerService_SessionsClient) {
	err := c.out.Run(ctx, c.pack, func(m *dtaskv1.SessionsRequest) error {
		if err := stream.Send(m); err != nil {
			return err //nolint:wrapcheck // wrapped below
		}
		for _, p := range c.packed {
			signal(p.sent)
		}
		return nil
	})
	if err != nil && !errors.Is(err, io.EOF) { // else receive hears why
		c.finish(fmt.Errorf("sending: %w", err))
	}
}

// pack makes a message of what the sessions have to say.
func (c *carrier) pack(asked []*part, ends []uint32) (m *dtaskv1.SessionsRequest, turns int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m = &dtaskv1.SessionsRequest{}
	for size := 0; turns < len(asked); turns++ {
		p := asked[turns]
		more := proto.Size(p.out)
		if size > 0 && size+more > carrierBytes {
			break
		}
		size += more
		if c.parts[p.number] == p {
			m.Frames = append(m.Frames, &dtaskv1.RequestFrame{Session: p.number, Message: p.out})
		}
		p.out = nil
	}
	c.packed = append(c.packed[:0], asked[:turns]...)
	for _, number := range ends {
		m.Frames = append(m.Frames, &dtaskv1.RequestFrame{Session: number, End: true})
	}
	return m, turns
}
