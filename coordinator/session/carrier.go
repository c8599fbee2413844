package session

import (
	"context"
	"sync"

	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/internal/sendqueue"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// carrierBytes closes a message of a carrier; a frame that is larger goes alone.
	carrierBytes = 256 << 10
	// carrierFrames does so, too.
	carrierFrames = 4096
	// smallFrame is about how large a frame is without assignments.
	smallFrame = 64
	// carrierSessions bounds the sessions of a carrier, as streams of a connection
	// are bounded.
	carrierSessions = 20_000
)

// carrier is one stream with the sessions of many workers.
type carrier struct {
	service *Service
	stream  dtaskv1.WorkerService_SessionsServer
	all     sync.WaitGroup // goroutines of its sessions
	last    uint32         // the highest number of a session; receive's own

	// out has the sessions that have something to say, and the ends of others.
	out *sendqueue.Queue[*lane, *dtaskv1.ResponseFrame, dtaskv1.SessionsResponse]

	mu    sync.Mutex // guards the rest
	lanes map[uint32]*lane
}

// Sessions implements dtaskv1.WorkerServiceServer.
func (s *Service) Sessions(stream dtaskv1.WorkerService_SessionsServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	c := &carrier{service: s, stream: stream, lanes: make(map[uint32]*lane), out: sendqueue.New[*lane, *dtaskv1.ResponseFrame, dtaskv1.SessionsResponse]()}
	defer func() {
		cancel()
		c.all.Wait()
	}()
	go func() { // ends when this handler has returned: see the package comment
		defer cancel()
		_ = c.out.Run(ctx, c.pack, stream.Send) // the workers have gone; they come back by themselves
	}()
	c.receive(ctx)
	return nil
}

// receive hands what comes to the sessions until the stream ends. Nothing that it
// calls waits for a session.
func (c *carrier) receive(ctx context.Context) {
	for {
		m, err := c.stream.Recv()
		if err != nil {
			return // the workers have gone; they come back by themselves
		}
		for _, f := range m.GetFrames() {
			c.heard(ctx, f)
		}
	}
}

// heard takes one frame.
func (c *carrier) heard(ctx context.Context, f *dtaskv1.RequestFrame) {
	c.mu.Lock()
	l := c.lanes[f.GetSession()]
	present := len(c.lanes)
	c.mu.Unlock()
	switch {
	case l == nil && f.GetSession() <= c.last:
		return // it has ended
	case l == nil:
		c.last = f.GetSession()
		if f.GetEnd() {
			return
		}
		if l = c.open(ctx, f.GetSession(), present); l == nil {
			return
		}
	case f.GetEnd():
		l.cancel(nil)
		return
	}
	if f.GetMessage() != nil {
		l.hear(f.GetMessage())
	}
}

// open begins a session, or refuses it.
func (c *carrier) open(ctx context.Context, number uint32, present int) *lane {
	s := c.service
	ctx, cancel := context.WithCancelCause(ctx)
	entered, err := s.Enter(ctx)
	if err == nil && present >= carrierSessions {
		err = &sequencer.BusyError{What: "too many sessions share a stream", RetryAfter: tooMuchPause}
	}
	if err != nil {
		cancel(nil)
		c.end(number, s.cfg.Guard(ctx, func() error { return err }))
		return nil
	}
	l := &lane{c: c, number: number, ctx: entered, cancel: cancel, hello: make(chan *dtaskv1.SessionRequest, 1)}
	c.mu.Lock()
	c.lanes[number] = l
	c.mu.Unlock()
	c.all.Go(func() {
		defer cancel(nil)
		err := s.cfg.Guard(entered, func() error {
			return s.serve(entered, func(leader Leader) *session {
				x := newSession(s, leader, entered.Done(), cancel)
				x.lane, x.hello = l, l.hello
				return x
			})
		})
		c.end(number, err)
	})
	return l
}

// end tells the worker that a session has ended, and why.
func (c *carrier) end(number uint32, err error) {
	st := status.Convert(err)
	end := &dtaskv1.SessionEnd{Code: uint32(st.Code()), Message: st.Message()}
	for _, d := range st.Details() {
		if d, ok := d.(*dtaskv1.ErrorDetail); ok {
			end.Detail = d
		}
	}
	c.mu.Lock()
	if l := c.lanes[number]; l != nil {
		l.ended.Store(true)
		delete(c.lanes, number)
	}
	c.mu.Unlock()
	c.out.AddItem(&dtaskv1.ResponseFrame{Session: number, End: end})
}

// pack makes a message of what the sessions have to say: what comes while one is on
// its way gathers at each session, too, for its next frame.
func (c *carrier) pack(asked []*lane, ends []*dtaskv1.ResponseFrame) (m *dtaskv1.SessionsResponse, turns int) {
	m = &dtaskv1.SessionsResponse{Frames: make([]*dtaskv1.ResponseFrame, 0, min(len(asked), carrierFrames)+len(ends))}
	for size := 0; turns < len(asked) && size < carrierBytes && len(m.GetFrames()) < carrierFrames; turns++ {
		l := asked[turns]
		l.queued.Store(false) // before it is asked: what it has to say afterwards is asked for again
		if l.ended.Load() {
			continue
		}
		part, _ := l.x.next(l.ctx)
		if l.x.more() {
			l.wake()
		}
		if part == nil {
			continue
		}
		size += smallFrame + l.x.filled
		m.Frames = append(m.Frames, &dtaskv1.ResponseFrame{Session: l.number, Message: part})
	}
	m.Frames = append(m.Frames, ends...)
	if len(m.GetFrames()) == 0 {
		return nil, turns
	}
	return m, turns
}
