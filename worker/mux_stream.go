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
	// maxMessageBytes ends a message; a larger frame is sent alone.
	maxMessageBytes = 256 << 10
	// maxUnread bounds the messages that a session has received and not
	// handled. A session handles them immediately, and its slots bound what the
	// leader sends.
	maxUnread = 10_000
)

var errUnread = errors.New("worker: this session does not handle the leader's messages")

// muxStream is the multiplexed stream of one connection: it carries the
// sessions of all workers that use the connection.
type muxStream struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	// out holds the slots with a message to send, and the numbers of sessions
	// that were left.
	out    *sendqueue.Queue[*streamSlot, uint32, dtaskv1.SessionsRequest]
	packed []*streamSlot // the slots whose messages are being sent; used by send only

	mu    sync.Mutex // guards the rest
	last  uint32     // highest session number so far
	slots map[uint32]*streamSlot
	err   error // why the stream ended; nil while it is open
}

// streamSlot is the part of a multiplexed stream that belongs to one session.
type streamSlot struct {
	m       *muxStream
	sent    chan struct{} // size 1: the last message was sent
	arrived chan struct{} // size 1: take has messages, or the end

	// The stream's lock guards the rest.
	number uint32 // 0 before the first message
	out    *dtaskv1.SessionRequest
	in     []*dtaskv1.SessionResponse
	err    error // why the session ended
	left   bool
}

// newMuxStream opens a stream. ctx provides the metadata of the call; it does
// not limit its duration.
func newMuxStream(ctx context.Context, conn grpc.ClientConnInterface) *muxStream {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m := &muxStream{cancel: cancel, out: sendqueue.New[*streamSlot, uint32, dtaskv1.SessionsRequest](), slots: make(map[uint32]*streamSlot)}
	m.running.Go(func() {
		// It may wait for the connection: no session waits here.
		stream, err := dtaskv1.NewWorkerServiceClient(conn).Sessions(ctx)
		if err != nil {
			m.finish(err)
			return
		}
		m.running.Go(func() { m.send(ctx, stream) })
		m.finish(m.receive(stream))
	})
	return m
}

// close ends the stream and waits for its goroutines.
func (m *muxStream) close() {
	m.cancel()
	m.running.Wait()
}

func (m *muxStream) isOpen() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err == nil
}

// finish ends all sessions with the stream.
func (m *muxStream) finish(err error) {
	m.cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
	for _, s := range m.slots {
		s.endLocked(err)
	}
	m.slots = nil
}

// open returns the slot of a new session. The session starts with its first
// message.
func (m *muxStream) open() *streamSlot {
	return &streamSlot{m: m, sent: make(chan struct{}, 1), arrived: make(chan struct{}, 1)}
}

// leave ends the session from this side. Nothing is sent or received
// afterwards.
func (s *streamSlot) leave() {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	s.left = true
	if _, open := m.slots[s.number]; open {
		delete(m.slots, s.number)
		m.out.AddItem(s.number)
	}
}

// send queues a message; sent has a token once it was sent. The caller waits
// for that before it sends another, so that whatever it has to send meanwhile
// shares the next one. If the session has ended, the message is dropped and
// take returns the reason.
func (s *streamSlot) send(message *dtaskv1.SessionRequest) {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.err == nil && m.err != nil {
		s.endLocked(m.err)
	}
	if s.err != nil || s.left {
		return
	}
	if s.number == 0 {
		// Numbered here and not by open: the coordinator ignores a new number
		// that is not above all numbers before it.
		m.last++
		s.number = m.last
		m.slots[s.number] = s
	}
	s.out = message
	m.out.Add(s)
}

// take returns all messages that have arrived, or the reason why the session
// ended.
func (s *streamSlot) take() ([]*dtaskv1.SessionResponse, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if len(s.in) == 0 {
		return nil, s.err
	}
	messages := s.in
	s.in = nil
	if s.err != nil {
		signal(s.arrived) // the next take returns it
	}
	return messages, nil
}

// endLocked ends the session from the other side.
func (s *streamSlot) endLocked(err error) {
	s.err = err
	signal(s.arrived)
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default: // the channel holds a token already
	}
}

// receive delivers messages to the sessions until the stream ends, and returns
// the reason.
func (m *muxStream) receive(stream dtaskv1.WorkerService_SessionsClient) error {
	for {
		response, err := stream.Recv()
		if err != nil {
			return err //nolint:wrapcheck // wrapped by the session
		}
		m.mu.Lock()
		for _, f := range response.GetFrames() {
			if s := m.slots[f.GetSession()]; s != nil { // otherwise the session was left
				m.deliverLocked(s, f)
			}
		}
		m.mu.Unlock()
	}
}

// deliverLocked delivers one frame.
func (m *muxStream) deliverLocked(s *streamSlot, f *dtaskv1.ResponseFrame) {
	switch {
	case f.GetEnd() != nil:
		delete(m.slots, s.number)
		s.endLocked(errorOf(f.GetEnd()))
	case len(s.in) >= maxUnread:
		delete(m.slots, s.number)
		m.out.AddItem(s.number)
		s.endLocked(errUnread)
	case f.GetMessage() != nil:
		s.in = append(s.in, f.GetMessage())
		signal(s.arrived)
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
	return st.Err() //nolint:wrapcheck // wrapped by the session
}

// send sends the sessions' messages until the stream ends.
func (m *muxStream) send(ctx context.Context, stream dtaskv1.WorkerService_SessionsClient) {
	err := m.out.Run(ctx, m.pack, func(request *dtaskv1.SessionsRequest) error {
		if err := stream.Send(request); err != nil {
			return err //nolint:wrapcheck // wrapped below
		}
		for _, s := range m.packed {
			signal(s.sent)
		}
		return nil
	})
	if err != nil && !errors.Is(err, io.EOF) { // at EOF, receive returns the reason
		m.finish(fmt.Errorf("sending: %w", err))
	}
}

// pack builds a message from the sessions' messages.
func (m *muxStream) pack(slots []*streamSlot, left []uint32) (request *dtaskv1.SessionsRequest, turns int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	frames := make([]dtaskv1.RequestFrame, len(slots)+len(left)) // one allocation for all
	request = &dtaskv1.SessionsRequest{Frames: make([]*dtaskv1.RequestFrame, 0, len(frames))}
	for size := 0; turns < len(slots); turns++ {
		s := slots[turns]
		if len(slots) > 1 { // the message of a session that is alone needs no measuring
			more := proto.Size(s.out)
			if size > 0 && size+more > maxMessageBytes {
				break
			}
			size += more
		}
		if m.slots[s.number] == s {
			f := &frames[len(request.GetFrames())]
			f.Session, f.Message = s.number, s.out
			request.Frames = append(request.Frames, f)
		}
		s.out = nil
	}
	m.packed = append(m.packed[:0], slots[:turns]...)
	for _, number := range left {
		request.Frames = append(request.Frames, &dtaskv1.RequestFrame{Session: number, End: true})
	}
	return request, turns
}
