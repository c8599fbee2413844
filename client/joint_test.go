package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A gate is a coordinator that keeps the first submissions waiting until it is opened.
type gate struct {
	*fake

	entered chan string // names of jobs that came alone
	open    chan struct{}

	mu    sync.Mutex
	calls [][]string // names of jobs that came together
}

func newGate(t *testing.T, n *network) *gate {
	t.Helper()
	g := &gate{fake: &fake{aloneApart: true}, entered: make(chan string, 100), open: make(chan struct{})}
	g.submit = func(_ string, h *dtaskv1.JobHeader, _ []*dtaskv1.TaskSpec) (*dtaskv1.SubmitResponse, error) {
		g.entered <- h.GetName()
		<-g.open
		return &dtaskv1.SubmitResponse{Id: h.GetName()}, nil
	}
	g.submitMany = func(jobs []*dtaskv1.SubmitRequest) (answers []*dtaskv1.SubmitAnswer) {
		var names []string
		for _, j := range jobs {
			name := j.GetHeader().GetName()
			names = append(names, name)
			a := &dtaskv1.SubmitAnswer{Stored: &dtaskv1.SubmitResponse{Id: name}}
			switch {
			case strings.HasPrefix(name, "bad"):
				a = &dtaskv1.SubmitAnswer{Code: int32(codes.InvalidArgument), Message: "no good", Detail: &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_INVALID}}
			case strings.HasPrefix(name, "busy"):
				a = &dtaskv1.SubmitAnswer{Code: int32(codes.ResourceExhausted), Message: "full", Detail: &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_BUSY}}
			}
			answers = append(answers, a)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.calls = append(g.calls, names)
		return answers
	}
	n.serve(t, "a:1", g.fake)
	return g
}

// A submission is what became of a job.
type submission struct {
	got Submitted
	err error
}

// submitAll submits jobs at the same time, each when the one before is on its way or waits.
// Whoever cares what they share calls it in virtual time: they wait for only so long.
func submitAll(ctx context.Context, c *Client, names ...string) map[string]chan submission {
	all := make(map[string]chan submission)
	for _, name := range names {
		done := make(chan submission, 1)
		all[name] = done
		before := c.joint.load()
		go func() {
			got, err := c.Submit(ctx, small(name, 10).Job, SubmitOptions{Key: "key of " + name})
			done <- submission{got, err}
		}()
		for c.joint.load() == before && len(done) == 0 {
			runtime.Gosched()
		}
	}
	return all
}

// load is how many submissions are on their way or wait.
func (t *joint) load() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running + len(t.waiting)
}

func some(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(prefix, i))
	}
	return names
}

func TestSubmissionsThatComeTogetherShareACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1"}})
		g := newGate(t, n)
		names := append(some("job", 20), "bad", "busy")
		all := submitAll(t.Context(), c, names...)
		for range goAtOnce {
			<-g.entered
		}
		g.open <- struct{}{} // one of them is answered
		for i, name := range names[goAtOnce:] {
			if name == "busy" {
				if alone := <-g.entered; alone != name || i != len(names)-goAtOnce-1 {
					t.Errorf("%s went alone", alone)
				}
				close(g.open)
			}
			got := <-all[name]
			switch {
			case name == "bad":
				if !errors.Is(got.err, ErrInvalid) || got.got.ID != "" {
					t.Errorf("%s: got %+v", name, got)
				}
			case got.err != nil || got.got.ID != name || got.got.Key != "key of "+name:
				t.Errorf("%s: got %+v", name, got)
			}
		}
		if len(g.calls) != 1 || len(g.calls[0]) != len(names)-goAtOnce {
			t.Errorf("those that waited went in %v", g.calls)
		}
		for _, name := range names[:goAtOnce] {
			if got := <-all[name]; got.err != nil || got.got.ID != name {
				t.Errorf("%s: got %+v", name, got)
			}
		}
		if load := c.joint.load(); load != 0 {
			t.Errorf("%d submissions are on their way at the end", load)
		}
	})
}

func TestASubmissionThatIsGivenUpWhileItWaitsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1"}})
		g := newGate(t, n)
		first := submitAll(t.Context(), c, some("first", goAtOnce)...)
		leaving, leave := context.WithCancel(t.Context())
		given := submitAll(leaving, c, "given up")
		rest := submitAll(t.Context(), c, some("rest", 3)...)
		leave()
		if got := <-given["given up"]; !errors.Is(got.err, context.Canceled) {
			t.Errorf("who gave up got %+v", got)
		}
		close(g.open)
		for _, all := range []map[string]chan submission{first, rest} {
			for name, done := range all {
				if got := <-done; got.err != nil || got.got.ID != name {
					t.Errorf("%s: got %+v", name, got)
				}
			}
		}
		for _, call := range g.calls {
			for _, name := range call {
				if name == "given up" {
					t.Error("what was given up was sent")
				}
			}
		}
	})
}

func TestWhoLeavesInTheMiddleOfASharedCallTakesNobodyAlong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1"}})
		g := newGate(t, n)
		submitAll(t.Context(), c, some("first", goAtOnce)...)
		for range goAtOnce {
			<-g.entered
		}
		answer, called, held := g.submitMany, make(chan struct{}), make(chan struct{})
		g.submitMany = func(jobs []*dtaskv1.SubmitRequest) []*dtaskv1.SubmitAnswer {
			close(called)
			<-held
			return answer(jobs)
		}
		leaving, leave := context.WithCancel(t.Context())
		caller := submitAll(leaving, c, "caller")
		others := submitAll(t.Context(), c, some("other", 3)...)
		g.open <- struct{}{} // one of the first is answered
		<-called
		leave()
		close(g.open)
		if got := <-caller["caller"]; !errors.Is(got.err, context.Canceled) {
			t.Errorf("who left got %+v", got)
		}
		for name, done := range others {
			if got := <-done; got.err != nil || got.got.ID != name {
				t.Errorf("%s: got %+v", name, got)
			}
		}
		close(held)
	})
}

func TestASharedCallThatNobodyTakesFailsForEachWithItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1"}, Timeout: 300 * time.Millisecond})
		f := &fake{submit: func(string, *dtaskv1.JobHeader, []*dtaskv1.TaskSpec) (*dtaskv1.SubmitResponse, error) {
			return nil, status.Error(codes.Unavailable, "gone")
		}, submitMany: func([]*dtaskv1.SubmitRequest) []*dtaskv1.SubmitAnswer { return nil }} // too few answers
		n.serve(t, "a:1", f)
		for name, done := range submitAll(t.Context(), c, some("job", goAtOnce+3)...) {
			got := <-done
			var e *Error
			if !errors.As(got.err, &e) || !errors.Is(e, ErrUnreachable) || e.Key != "key of "+name || !e.Unknown || !strings.HasPrefix(e.Message, submitting) {
				t.Errorf("%s: got %+v", name, got)
			}
		}
	})
}
