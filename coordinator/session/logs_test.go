package session_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/session"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const stdout = dtaskv1.LogStream_LOG_STREAM_STDOUT

// attempt is an attempt of worker 1.
var attempt = fsm.HeldAttempt{AttemptRef: fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 5, Index: 6}, Attempt: 7}, Worker: 1}

// reader reads logs until it is stopped or they end.
type reader struct {
	pieces chan string
	err    chan error
}

func (h *house) read(ctx context.Context, follow bool, pieces int) reader {
	return h.readOf(ctx, attempt, follow, pieces)
}

func (h *house) readOf(ctx context.Context, of fsm.HeldAttempt, follow bool, pieces int) reader {
	r := reader{pieces: make(chan string, pieces), err: make(chan error, 1)}
	go func() {
		r.err <- h.service.Logs(ctx, of, stdout, follow, func(d *dtaskv1.LogData) error {
			select {
			case r.pieces <- dataOf(d):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return r
}

func dataOf(d *dtaskv1.LogData) (text string) {
	for _, p := range d.GetPieces() {
		text += string(p.GetData())
	}
	return text
}

func (r reader) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.err:
		return err
	case <-time.After(5 * time.Minute):
		t.Fatal("the reader did not end")
		return nil
	}
}

// asked receives the next log request.
func (p *peer) asked() *dtaskv1.LogRequest {
	p.t.Helper()
	return p.next("a request for logs", func(m *dtaskv1.SessionResponse) bool { return m.GetLogRequest() != nil }).GetLogRequest()
}

// request receives the next log request that is not a cancellation.
func (p *peer) request() *dtaskv1.LogRequest {
	p.t.Helper()
	for {
		if q := p.asked(); !q.GetCancel() {
			return q
		}
	}
}

func (p *peer) log(id uint64, text string, end bool) {
	p.t.Helper()
	m := &dtaskv1.LogData{Id: id, End: end}
	if text != "" {
		m.Pieces = []*dtaskv1.LogPiece{{Stream: stdout, Data: []byte(text)}}
	}
	p.say(&dtaskv1.SessionRequest{LogData: m})
}

func TestLogsAreReadFromTheirWorker(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			p := h.join(helloOf("w", 1))
			r := h.read(t.Context(), true, 10)
			q := p.asked()
			want := &dtaskv1.AttemptRef{Job: 5, Task: 6, Attempt: 7}
			if q.GetAttempt().String() != want.String() || q.GetStream() != stdout || !q.GetFollow() || q.GetCancel() {
				t.Errorf("got request %v", q)
			}
			other := h.read(t.Context(), false, 10)
			q2 := p.asked()
			p.log(q.GetId(), "a", false)
			p.log(q2.GetId(), "x", true)
			p.log(q.GetId(), "", false)
			p.log(q.GetId(), "b", true)
			p.log(q.GetId(), "after the end", false)
			p.log(4711, "nobody's", false)
			if err := errors.Join(r.end(t), other.end(t)); err != nil {
				t.Fatal(err)
			}
			got := []string{<-r.pieces, <-r.pieces, <-other.pieces}
			if !slices.Equal(got, []string{"a", "b", "x"}) || len(r.pieces)+len(other.pieces) > 0 {
				t.Errorf("read %q", got)
			}
		})
	}
}

func TestAWorkerIsAskedForALogUntilItHasReceivedTheAttempt(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			p := h.join(helloOf("w", 1))
			job := h.submit("a", 1, 0, nil)
			h.await("the assignment", func() bool { return h.task(job, 0).State == fsm.Assigned })
			task := h.task(job, 0)
			live := fsm.HeldAttempt{AttemptRef: fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: job}, Attempt: task.Attempt}, Worker: task.Worker}
			r := h.readOf(t.Context(), live, true, 10)
			absent := func() {
				p.say(&dtaskv1.SessionRequest{LogData: &dtaskv1.LogData{Id: p.request().GetId(), End: true, Error: "wrote nothing", Absent: true}})
			}
			absent()
			absent()
			p.log(p.request().GetId(), "a", true)
			if err := r.end(t); err != nil || len(r.pieces) != 1 || <-r.pieces != "a" {
				t.Errorf("the reader of a live attempt ended with %v", err)
			}
			p.report(1, succeeded, &dtaskv1.AttemptRef{Job: uint64(job), Attempt: task.Attempt})
			h.await("its end", func() bool { return h.task(job, 0).State.Terminal() })
			r = h.readOf(t.Context(), live, true, 10)
			absent()
			if err := r.end(t); !errors.Is(err, session.ErrLogsUnavailable) || !strings.Contains(err.Error(), "wrote nothing") {
				t.Errorf("the reader of an attempt that has ended got %v", err)
			}
		})
	}
}

func TestALogReaderThatLeavesIsCancelledAtTheWorker(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			p := h.join(helloOf("w", 1))
			ctx, cancel := context.WithCancel(t.Context())
			r := h.read(ctx, true, 10)
			q := p.asked()
			p.log(q.GetId(), "a", false)
			<-r.pieces
			cancel()
			if err := r.end(t); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			if again := p.asked(); again.GetId() != q.GetId() || !again.GetCancel() {
				t.Errorf("the worker got %v, want the cancellation of %d", again, q.GetId())
			}
		})
	}
}

func TestASlowLogReaderIsDroppedAndDelaysNothing(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			p := h.join(helloOf("w", 1))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := h.read(ctx, true, 1)
			q := p.asked()
			for range 1000 {
				p.log(q.GetId(), "a", false)
			}
			p.say(&dtaskv1.SessionRequest{Heartbeat: 5})
			p.next("the answer to a beat", func(m *dtaskv1.SessionResponse) bool { return m.GetHeartbeat() == 5 })
			cut := func() *dtaskv1.LogRequest {
				for _, m := range p.seen {
					if sent := m.GetLogRequest(); sent.GetCancel() {
						return sent
					}
				}
				return p.asked()
			}()
			if cut.GetId() != q.GetId() || !cut.GetCancel() {
				t.Errorf("the worker got %v, want the cancellation of %d", cut, q.GetId())
			}
			for ended := false; !ended; {
				select {
				case <-r.pieces:
				case err := <-r.err:
					if !errors.Is(err, session.ErrSlowReader) {
						t.Errorf("a dropped reader got %v", err)
					}
					ended = true
				}
			}
		})
	}
}

func TestLogsOfADisconnectedWorkerAreUnavailable(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			if err := h.read(t.Context(), false, 1).end(t); !errors.Is(err, session.ErrWorkerUnavailable) {
				t.Errorf("without a session: %v", err)
			}
			p := h.join(helloOf("w", 1))
			gone := h.read(t.Context(), false, 1)
			p.say(&dtaskv1.SessionRequest{LogData: &dtaskv1.LogData{Id: p.asked().GetId(), End: true, Error: "removed"}})
			if err := gone.end(t); !errors.Is(err, session.ErrLogsUnavailable) {
				t.Errorf("removed logs: %v", err)
			}
			left := h.read(t.Context(), true, 1)
			p.asked()
			p.cancel()
			if err := left.end(t); !errors.Is(err, session.ErrWorkerUnavailable) {
				t.Errorf("a worker that left: %v", err)
			}
			if err := h.result(); err != nil {
				t.Errorf("its session ended with %v", err)
			}
			if err := h.read(t.Context(), false, 1).end(t); !errors.Is(err, session.ErrWorkerUnavailable) {
				t.Errorf("after its session: %v", err)
			}
		})
	}
}

func TestCompleteLogsOutliveTheirWorkersSession(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			for i := range 20 {
				p := h.join(helloOf("w", 1))
				hold := make(chan struct{})
				var read []string
				done := make(chan error, 1)
				go func() {
					done <- h.service.Logs(t.Context(), attempt, stdout, false, func(d *dtaskv1.LogData) error {
						<-hold
						read = append(read, dataOf(d))
						return nil
					})
				}()
				id := p.asked().GetId()
				for range 10 {
					p.log(id, "a", false)
				}
				p.log(id, "b", true)
				p.say(&dtaskv1.SessionRequest{Heartbeat: 5})
				p.next("the answer to a beat", func(m *dtaskv1.SessionResponse) bool { return m.GetHeartbeat() == 5 })
				p.cancel()
				_ = h.result()
				close(hold)
				if err := <-done; err != nil || len(read) != 11 {
					t.Fatalf("run %d: read %d chunks, %v; want all 11", i, len(read), err)
				}
			}
		})
	}
}
