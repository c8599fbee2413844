package worker

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/internal/sendqueue"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// fakeSlot is the coordinator's side of one session of a stream.
type fakeSlot struct {
	ctx    context.Context
	cancel context.CancelFunc
	number uint32
	in     chan *dtaskv1.SessionRequest
	send   func(*dtaskv1.ResponseFrame) error
}

func (s *fakeSlot) Send(m *dtaskv1.SessionResponse) error {
	return s.send(&dtaskv1.ResponseFrame{Session: s.number, Message: m})
}

func (s *fakeSlot) Recv() (*dtaskv1.SessionRequest, error) {
	select {
	case m := <-s.in:
		return m, nil
	case <-s.ctx.Done():
		return nil, io.EOF
	}
}

// Sessions implements dtaskv1.WorkerServiceServer: it passes each session to
// the test.
func (r *node) Sessions(stream dtaskv1.WorkerService_SessionsServer) error {
	r.streams.Add(1)
	var mu sync.Mutex
	send := func(f *dtaskv1.ResponseFrame) error {
		mu.Lock()
		defer mu.Unlock()
		return stream.Send(&dtaskv1.SessionsResponse{Frames: []*dtaskv1.ResponseFrame{f}})
	}
	slots := make(map[uint32]*fakeSlot)
	var all sync.WaitGroup
	defer all.Wait()
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, f := range m.GetFrames() {
			s := slots[f.GetSession()]
			if s == nil {
				ctx, cancel := context.WithCancel(stream.Context())
				s = &fakeSlot{ctx: ctx, cancel: cancel, in: make(chan *dtaskv1.SessionRequest, 10_000), send: send, number: f.GetSession()}
				slots[s.number] = s
				all.Go(func() {
					st := status.Convert(r.session(s))
					s.cancel()
					end := &dtaskv1.SessionEnd{Code: uint32(st.Code()), Message: st.Message()}
					for _, d := range st.Details() {
						end.Detail, _ = d.(*dtaskv1.ErrorDetail)
					}
					_ = send(&dtaskv1.ResponseFrame{Session: s.number, End: end}) // or the stream has ended
				})
			}
			if f.GetEnd() {
				s.cancel()
			} else {
				s.in <- f.GetMessage()
			}
		}
	}
}

func TestWorkersThatShareAConnectionShareAStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		c := newGroup(t, n, 4)
		defer c.finish()
		ends := map[string]*leaderEnd{}
		for range 4 {
			l := (<-r.sessions).welcome(t, 1)
			ends[l.hello.GetHello().GetName()] = l
		}
		// A session that receives nothing ends after its liveness timeout and is
		// reopened on another connection; the others stay.
		since := time.Now()
		var all sync.WaitGroup
		for _, name := range []string{"w1", "w2", "w3"} {
			all.Go(func() { ends[name].serveTillEnd(t) })
		}
		again := (<-r.sessions).welcome(t, 1)
		if name := again.hello.GetHello().GetName(); name != "w0" || time.Since(since) < livenessTimeout {
			t.Errorf("got %s back after %v, want w0 after its liveness timeout", name, time.Since(since))
		}
		if r.streams.Load() != 2 {
			t.Errorf("got %d streams, want one for three sessions and one for the new connection", r.streams.Load())
		}
		for _, leave := range c.leave {
			leave()
		}
		all.Wait()
	})
}

func TestAWorkerAloneIsOneSessionOnItsStream(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{Slots: 1}, map[string]Handler{"echo": returns}, func(_ *harness, l *leaderEnd) {
		if l.stream.number != 1 {
			t.Errorf("got session number %d, want 1", l.stream.number)
		}
		l.assign(t, work{task: 1, typ: "echo", body: &dtaskv1.TaskBody{Payload: []byte("x")}})
		if o := l.outcome(t); string(o.GetResult()) != "x" {
			t.Errorf("got %v", o)
		}
	})
}

func TestASessionIsLeftWhileItsStreamHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		conn, err := grpc.NewClient("passthrough:///nobody", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(hangs))
		if err != nil {
			t.Fatal(err)
		}
		m := newMuxStream(t.Context(), conn)
		s := m.open()
		s.send(&dtaskv1.SessionRequest{})
		synctest.Wait()
		select {
		case <-s.sent:
			t.Error("sent to an ended session")
		case <-s.arrived:
			t.Error("received from an ended session")
		default:
		}
		s.leave()
		_ = conn.Close()
		m.close()
	})
}

func TestAFailedStreamEndsItsSessionsWithTheReason(t *testing.T) {
	t.Parallel()
	m := emptyMuxStream()
	before, after := m.open(), m.open()
	before.send(&dtaskv1.SessionRequest{})
	broken := errors.New("broken")
	m.finish(broken)
	after.send(&dtaskv1.SessionRequest{})
	for _, s := range []*streamSlot{before, after} {
		<-s.arrived
		if _, err := s.take(); !errors.Is(err, broken) {
			t.Errorf("got end %v, want %v", err, broken)
		}
	}
	if m.isOpen() {
		t.Error("the stream is open, want closed")
	}
}

func emptyMuxStream() *muxStream {
	return &muxStream{cancel: func() {}, out: sendqueue.New[*streamSlot, uint32, dtaskv1.SessionsRequest](), slots: make(map[uint32]*streamSlot)}
}

func TestAMessageOfManySessionsIsBounded(t *testing.T) {
	t.Parallel()
	m := emptyMuxStream()
	const sessions = 20
	for range sessions {
		m.open().send(&dtaskv1.SessionRequest{LogData: &dtaskv1.LogData{Pieces: []*dtaskv1.LogPiece{{Data: make([]byte, maxMessageBytes/4)}}}})
	}
	m.open().send(&dtaskv1.SessionRequest{LogData: &dtaskv1.LogData{Pieces: []*dtaskv1.LogPiece{{Data: make([]byte, 2*maxMessageBytes)}}}})
	gone := m.open()
	gone.send(&dtaskv1.SessionRequest{})
	gone.leave()
	var sizes []int
	frames := 0
	for _, m := range sentBy(t, m) {
		sizes = append(sizes, len(m.GetFrames()))
		frames += len(m.GetFrames())
		for _, f := range m.GetFrames() {
			if f.GetSession() == gone.number && !f.GetEnd() {
				t.Error("got a message of a left session")
			}
		}
	}
	if frames != sessions+2 || len(sizes) < sessions/4 {
		t.Errorf("got messages of %v frames", sizes)
	}
}

func TestASessionThatReadsNothingEndsAlone(t *testing.T) {
	t.Parallel()
	m := emptyMuxStream()
	p, other := m.open(), m.open()
	p.send(&dtaskv1.SessionRequest{})
	other.send(&dtaskv1.SessionRequest{})
	for range maxUnread + 1 {
		m.mu.Lock()
		m.deliverLocked(p, &dtaskv1.ResponseFrame{Session: p.number, Message: &dtaskv1.SessionResponse{Heartbeat: 1}})
		m.mu.Unlock()
	}
	got, err := p.take()
	if len(got) != maxUnread || err != nil {
		t.Errorf("got %d messages and %v", len(got), err)
	}
	<-p.arrived
	if _, err := p.take(); !errors.Is(err, errUnread) || other.err != nil {
		t.Errorf("got end %v, and %v of the other session", err, other.err)
	}
}

// The other end treats a number that is not above all earlier ones as that of an
// ended session, and would ignore a session that sent its hello late.
func TestSessionsAreNumberedInTheOrderOfTheirFirstMessages(t *testing.T) {
	t.Parallel()
	m := emptyMuxStream()
	slow, quick, left := m.open(), m.open(), m.open()
	left.leave()
	quick.send(&dtaskv1.SessionRequest{Heartbeat: 1})
	slow.send(&dtaskv1.SessionRequest{Heartbeat: 2})
	left.send(&dtaskv1.SessionRequest{Heartbeat: 3})
	messages := sentBy(t, m)
	if len(messages) != 1 || len(messages[0].GetFrames()) != 2 {
		t.Fatalf("got %v, want a frame of each session with data", messages)
	}
	last := uint32(0)
	for i, f := range messages[0].GetFrames() {
		if f.GetSession() <= last || f.GetMessage().GetHeartbeat() != uint64(i+1) {
			t.Errorf("frame %d: got %v after session %d", i, f, last)
		}
		last = f.GetSession()
	}
}

// sentBy returns all messages that the sessions of a stream send.
func sentBy(t *testing.T, m *muxStream) (messages []*dtaskv1.SessionsRequest) {
	t.Helper()
	if err := m.out.Drain(m.pack, func(request *dtaskv1.SessionsRequest) error {
		messages = append(messages, request)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return messages
}
