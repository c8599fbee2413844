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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/internal/sendqueue"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// virtual is a session in a stream of many, as a stream of its own.
type virtual struct {
	grpc.ServerStream

	ctx  context.Context
	in   chan *dtaskv1.SessionRequest
	send func(*dtaskv1.ResponseFrame) error
	end  context.CancelFunc
	n    uint32
}

func (v *virtual) Context() context.Context { return v.ctx }

func (v *virtual) Send(m *dtaskv1.SessionResponse) error {
	return v.send(&dtaskv1.ResponseFrame{Session: v.n, Message: m})
}

func (v *virtual) Recv() (*dtaskv1.SessionRequest, error) {
	select {
	case m := <-v.in:
		return m, nil
	case <-v.ctx.Done():
		return nil, io.EOF
	}
}

// Sessions is the coordinator's end of a stream of many sessions: each is handed to
// the test like one of Session.
func (r *node) Sessions(stream dtaskv1.WorkerService_SessionsServer) error {
	if r.plain {
		return status.Error(codes.Unimplemented, "an earlier version")
	}
	r.carriers.Add(1)
	var mu sync.Mutex
	send := func(f *dtaskv1.ResponseFrame) error {
		mu.Lock()
		defer mu.Unlock()
		return stream.Send(&dtaskv1.SessionsResponse{Frames: []*dtaskv1.ResponseFrame{f}})
	}
	open := make(map[uint32]*virtual)
	var all sync.WaitGroup
	defer all.Wait()
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, f := range m.GetFrames() {
			v := open[f.GetSession()]
			if v == nil {
				ctx, end := context.WithCancel(stream.Context())
				v = &virtual{ctx: ctx, end: end, in: make(chan *dtaskv1.SessionRequest, 10_000), send: send, n: f.GetSession()}
				open[v.n] = v
				all.Go(func() {
					st := status.Convert(r.Session(v))
					v.end()
					end := &dtaskv1.SessionEnd{Code: uint32(st.Code()), Message: st.Message()}
					for _, d := range st.Details() {
						end.Detail, _ = d.(*dtaskv1.ErrorDetail)
					}
					_ = send(&dtaskv1.ResponseFrame{Session: v.n, End: end}) // or the stream has ended
				})
			}
			if f.GetEnd() {
				v.end()
			} else {
				v.in <- f.GetMessage()
			}
		}
	}
}

func TestACoordinatorOfAnEarlierVersionGivesEachSessionAStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		r.plain = true
		c := newCrowd(t, n, 3)
		defer c.finish()
		for range 3 {
			l := (<-r.sessions).welcome(t, 1)
			l.assign(t, work{task: 1, typ: "echo", body: &dtaskv1.TaskBody{Payload: []byte("x")}})
			l.outcome(t)
		}
		if got := c.dials.Load(); got != 1 || r.carriers.Load() != 0 {
			t.Errorf("%d connections and %d streams of many sessions, want one and none", got, r.carriers.Load())
		}
	})
}

func TestWorkersThatShareAConnectionShareAStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		c := newCrowd(t, n, 4)
		defer c.finish()
		ends := map[string]*leaderEnd{}
		for range 4 {
			l := (<-r.sessions).welcome(t, 1)
			ends[l.hello.GetHello().GetName()] = l
		}
		// One that hears nothing leaves after its patience and comes over another
		// connection; the others stay where they are.
		since := time.Now()
		var all sync.WaitGroup
		for _, name := range []string{"w1", "w2", "w3"} {
			all.Go(func() { ends[name].serveTillEnd(t) })
		}
		again := (<-r.sessions).welcome(t, 1)
		if name := again.hello.GetHello().GetName(); name != "w0" || time.Since(since) < patience {
			t.Errorf("%s came back after %v, want w0 after its patience", name, time.Since(since))
		}
		if r.carriers.Load() != 2 {
			t.Errorf("%d streams, want one for three sessions and one for the new connection", r.carriers.Load())
		}
		for _, leave := range c.leave {
			leave()
		}
		all.Wait()
	})
}

func TestASessionIsLeftThoughItsStreamHangs(t *testing.T) {
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
		c := newCarrier(t.Context(), conn)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := c.open(ctx)
		var all sync.WaitGroup
		all.Go(func() {
			if err := p.Send(&dtaskv1.SessionRequest{}); err == nil {
				t.Error("sent to nobody")
			}
		})
		if _, err := p.Recv(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("received with %v from nobody", err)
		}
		all.Wait()
		p.leave()
		_ = conn.Close()
		c.close()
	})
}

func TestAMessageOfManySessionsIsBounded(t *testing.T) {
	t.Parallel()
	c := &carrier{out: sendqueue.New[*part, uint32, dtaskv1.SessionsRequest](), parts: make(map[uint32]*part)}
	const sessions = 20
	for range sessions {
		c.sayLocked(c.open(t.Context()), &dtaskv1.SessionRequest{LogData: &dtaskv1.LogData{Data: make([]byte, carrierBytes/4)}})
	}
	c.sayLocked(c.open(t.Context()), &dtaskv1.SessionRequest{LogData: &dtaskv1.LogData{Data: make([]byte, 2*carrierBytes)}})
	gone := c.open(t.Context())
	c.sayLocked(gone, &dtaskv1.SessionRequest{})
	gone.leave()
	var sizes []int
	frames := 0
	for _, m := range said(t, c) {
		sizes = append(sizes, len(m.GetFrames()))
		frames += len(m.GetFrames())
		for _, f := range m.GetFrames() {
			if f.GetSession() == gone.number && !f.GetEnd() {
				t.Error("a message of a session that was left is sent")
			}
		}
	}
	if frames != sessions+2 || len(sizes) < sessions/4 {
		t.Errorf("messages of %v frames", sizes)
	}
}

func TestASessionThatTakesNothingEndsAlone(t *testing.T) {
	t.Parallel()
	c := &carrier{out: sendqueue.New[*part, uint32, dtaskv1.SessionsRequest](), parts: make(map[uint32]*part)}
	p, other := c.open(t.Context()), c.open(t.Context())
	c.sayLocked(p, &dtaskv1.SessionRequest{})
	c.sayLocked(other, &dtaskv1.SessionRequest{})
	for range mostUnread + 1 {
		c.mu.Lock()
		c.takeLocked(p, &dtaskv1.ResponseFrame{Session: p.number, Message: &dtaskv1.SessionResponse{Beat: 1}})
		c.mu.Unlock()
	}
	n := 0
	var err error
	for ; err == nil; n++ {
		_, err = p.Recv()
	}
	if !errors.Is(err, errUnread) || n != mostUnread+1 || other.end != nil {
		t.Errorf("after %d messages: %v", n, err)
	}
}

// The other end takes a number that is not above all before it for that of a session
// that has ended, and would never hear one that was slow to say hello.
func TestSessionsAreNumberedInTheOrderInWhichTheySpeak(t *testing.T) {
	t.Parallel()
	c := &carrier{out: sendqueue.New[*part, uint32, dtaskv1.SessionsRequest](), parts: make(map[uint32]*part)}
	slow, quick, left := c.open(t.Context()), c.open(t.Context()), c.open(t.Context())
	left.leave()
	c.sayLocked(quick, &dtaskv1.SessionRequest{Beat: 1})
	c.sayLocked(slow, &dtaskv1.SessionRequest{Beat: 2})
	if c.sayLocked(left, &dtaskv1.SessionRequest{Beat: 3}) {
		t.Error("a session that was left says something")
	}
	messages := said(t, c)
	if len(messages) != 1 || len(messages[0].GetFrames()) != 2 {
		t.Fatalf("got %v, want a frame of each that speaks", messages)
	}
	last := uint32(0)
	for i, f := range messages[0].GetFrames() {
		if f.GetSession() <= last || f.GetMessage().GetBeat() != uint64(i+1) {
			t.Errorf("frame %d is %v, behind session %d", i, f, last)
		}
		last = f.GetSession()
	}
}

// said gives all that the sessions of a carrier have to say.
func said(t *testing.T, c *carrier) (messages []*dtaskv1.SessionsRequest) {
	t.Helper()
	if err := c.out.Drain(c.pack, func(m *dtaskv1.SessionsRequest) error {
		messages = append(messages, m)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return messages
}
