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
	// maxMessageBytes ends a message of a stream; a larger frame is sent alone.
	maxMessageBytes = 256 << 10
	// maxFrames also ends a message.
	maxFrames = 4096
	// frameOverhead is the approximate size of a frame without assignments.
	frameOverhead = 64
	// maxSessions bounds the sessions of one stream.
	maxSessions = 20_000
)

// muxStream is the multiplexed stream of one worker process: it carries the
// sessions of all its workers.
type muxStream struct {
	service  *Service
	stream   dtaskv1.WorkerService_SessionsServer
	sessions sync.WaitGroup // the goroutines of its sessions
	last     uint32         // highest session number so far; used by receive only
	turn     *turn          // admits the first session; nil once it is used

	// out holds the slots with something to send, and the frames that end
	// sessions.
	out *sendqueue.Queue[*streamSlot, *dtaskv1.ResponseFrame, dtaskv1.SessionsResponse]

	mu    sync.Mutex // guards slots
	slots map[uint32]*streamSlot
}

// Sessions implements dtaskv1.WorkerServiceServer.
func (s *Service) Sessions(stream dtaskv1.WorkerService_SessionsServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	m := &muxStream{
		service: s, stream: stream, turn: turnOf(ctx), slots: make(map[uint32]*streamSlot),
		out: sendqueue.New[*streamSlot, *dtaskv1.ResponseFrame, dtaskv1.SessionsResponse](),
	}
	defer func() {
		cancel()
		m.sessions.Wait()
		if m.turn != nil {
			m.turn.end()
		}
	}()
	// It ends when this handler has returned: see the package comment. If it fails, the
	// process is gone; its workers reconnect.
	m.out.Start(ctx, m.pack, stream.Send, func(error) { cancel() })
	m.receive(ctx)
	return ending(stream.Context())
}

// receive delivers frames to the sessions until the stream ends. Nothing that
// it calls waits for a session.
func (m *muxStream) receive(ctx context.Context) {
	for {
		request, err := m.stream.Recv()
		if err != nil {
			return // the process is gone; its workers reconnect
		}
		for _, f := range request.GetFrames() {
			m.deliver(ctx, f)
		}
	}
}

// deliver handles one frame.
func (m *muxStream) deliver(ctx context.Context, f *dtaskv1.RequestFrame) {
	m.mu.Lock()
	slot := m.slots[f.GetSession()]
	present := len(m.slots)
	m.mu.Unlock()
	switch {
	case slot == nil && f.GetSession() <= m.last:
		return // the session has ended
	case slot == nil:
		m.last = f.GetSession()
		if f.GetEnd() {
			return
		}
		if slot = m.open(ctx, f.GetSession(), present); slot == nil {
			return
		}
	case f.GetEnd():
		slot.cancel(nil)
		return
	}
	if f.GetMessage() != nil {
		slot.receive(f.GetMessage())
	}
}

// open opens a session, or refuses it.
func (m *muxStream) open(ctx context.Context, number uint32, present int) *streamSlot {
	ctx, cancel := context.WithCancelCause(ctx)
	turn, err := m.admit(present)
	if err != nil {
		cancel(nil)
		m.end(number, m.service.cfg.Guard(ctx, func() error { return err }))
		return nil
	}
	slot := &streamSlot{m: m, number: number, ctx: ctx, cancel: cancel, hello: make(chan *dtaskv1.SessionRequest, 1)}
	m.mu.Lock()
	m.slots[number] = slot
	m.mu.Unlock()
	m.service.serving.Add(1)
	m.sessions.Add(1)      // until finish
	go m.begin(slot, turn) //nolint:contextcheck // the session's context is the slot's
	return slot
}

// begin opens the session of a slot. No goroutine waits for its end: thousands of sessions
// are open, and most are idle.
func (m *muxStream) begin(slot *streamSlot, turn *turn) {
	var x *session
	err := m.service.cfg.Guard(slot.ctx, func() (err error) {
		x, err = m.service.begin(slot, turn)
		return err
	})
	if x == nil {
		m.finish(slot, err)
		return
	}
	context.AfterFunc(slot.ctx, func() {
		m.finish(slot, m.service.cfg.Guard(slot.ctx, func() error { return m.service.close(x) }))
	})
}

// finish ends the session of a slot with the status of its end.
func (m *muxStream) finish(slot *streamSlot, err error) {
	defer m.sessions.Done()
	defer m.service.serving.Add(-1)
	defer slot.cancel(nil)
	m.end(slot.number, err)
}

// admit returns the turn of a new session. The first session uses that of the
// stream.
func (m *muxStream) admit(present int) (*turn, error) {
	if t := m.turn; t != nil {
		m.turn = nil
		t.unused.Stop()
		t.unused = nil // the context of the stream keeps the turn
		if !t.ended.Load() {
			return t, nil
		}
	}
	if present >= maxSessions {
		return nil, &sequencer.BusyError{What: "too many sessions share a stream", RetryAfter: overloadRetryDelay}
	}
	return m.service.enter()
}

// end tells the worker that a session has ended, and why.
func (m *muxStream) end(number uint32, err error) {
	st := status.Convert(err)
	end := &dtaskv1.SessionEnd{Code: uint32(st.Code()), Message: st.Message()}
	for _, d := range st.Details() {
		if d, ok := d.(*dtaskv1.ErrorDetail); ok {
			end.Detail = d
		}
	}
	m.mu.Lock()
	if slot := m.slots[number]; slot != nil {
		slot.ended.Store(true)
		delete(m.slots, number)
	}
	m.mu.Unlock()
	m.out.AddItem(&dtaskv1.ResponseFrame{Session: number, End: end})
}

// pack builds a message with one frame of each session. Data that is added
// while a message is being sent gathers in the sessions, for their next frames.
func (m *muxStream) pack(slots []*streamSlot, ends []*dtaskv1.ResponseFrame) (response *dtaskv1.SessionsResponse, turns int) {
	n := min(len(slots), maxFrames)
	frames := make([]dtaskv1.ResponseFrame, n) // one allocation for all
	response = &dtaskv1.SessionsResponse{Frames: make([]*dtaskv1.ResponseFrame, 0, n+len(ends))}
	for size := 0; turns < len(slots) && size < maxMessageBytes && len(response.GetFrames()) < maxFrames; turns++ {
		slot := slots[turns]
		slot.queued.Store(false) // before next: data that is added from now on queues the slot again
		if slot.ended.Load() || slot.ctx.Err() != nil {
			continue // a closed session answers no heartbeat
		}
		message, assigned := slot.session.next()
		if message == nil {
			continue
		}
		size += frameOverhead + assigned
		f := &frames[len(response.GetFrames())]
		f.Session, f.Message = slot.number, message
		response.Frames = append(response.Frames, f)
	}
	response.Frames = append(response.Frames, ends...)
	if len(response.GetFrames()) == 0 {
		return nil, turns
	}
	return response, turns
}
