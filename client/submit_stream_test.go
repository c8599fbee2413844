package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A submission is the outcome of one call of Submit.
type submission struct {
	got Submitted
	err error
}

// submitAll submits jobs concurrently.
func submitAll(ctx context.Context, c *Client, names ...string) map[string]chan submission {
	all := make(map[string]chan submission)
	for _, name := range names {
		done := make(chan submission, 1)
		all[name] = done
		go func() {
			got, err := c.Submit(ctx, small(name, 10).Job, SubmitOptions{Key: "key of " + name})
			done <- submission{got, err}
		}()
	}
	return all
}

func some(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(prefix, i))
	}
	return names
}

// storeByName stores each job under its name once open is closed.
func storeByName(open <-chan struct{}) func(string, *dtaskv1.JobHeader, []*dtaskv1.TaskSpec) (*dtaskv1.StoredJob, error) {
	return func(_ string, h *dtaskv1.JobHeader, _ []*dtaskv1.TaskSpec) (*dtaskv1.StoredJob, error) {
		<-open
		return &dtaskv1.StoredJob{Id: h.GetName()}, nil
	}
}

func closedChannel() <-chan struct{} {
	open := make(chan struct{})
	close(open)
	return open
}

func wantStored(t *testing.T, all map[string]chan submission) {
	t.Helper()
	for name, done := range all {
		if got := <-done; got.err != nil || got.got.ID != name || got.got.Key != "key of "+name {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestConcurrentSubmissionsShareAStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1"}})
		busy := make(chan struct{}, 1)
		f := &fake{submit: func(_ string, h *dtaskv1.JobHeader, _ []*dtaskv1.TaskSpec) (*dtaskv1.StoredJob, error) {
			switch h.GetName() {
			case "bad":
				return nil, errFaulty
			case "busy":
				select {
				case busy <- struct{}{}:
					return nil, errBusy
				default:
				}
			}
			return &dtaskv1.StoredJob{Id: h.GetName()}, nil
		}}
		n.serve(t, "a:1", f)
		all := submitAll(t.Context(), c, append(some("job", 20), "bad", "busy")...)
		if got := <-all["bad"]; !errors.Is(got.err, ErrInvalid) || got.got.ID != "" {
			t.Errorf("the invalid job: got %+v", got)
		}
		delete(all, "bad")
		wantStored(t, all)
		if streams := f.streams.Load(); streams != 1 {
			t.Errorf("got %d streams, want 1", streams)
		}
	})
}

func TestCancelledSubmissionLeavesTheOthersInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1"}})
		open := make(chan struct{})
		f := &fake{submit: storeByName(open)}
		n.serve(t, "a:1", f)
		first := submitAll(t.Context(), c, some("first", 3)...)
		leaving, leave := context.WithCancel(t.Context())
		cancelled := submitAll(leaving, c, "cancelled")
		rest := submitAll(t.Context(), c, some("rest", 3)...)
		synctest.Wait()
		leave()
		if got := <-cancelled["cancelled"]; !errors.Is(got.err, context.Canceled) {
			t.Errorf("cancelled submission: got %+v", got)
		}
		close(open) // the result of the cancelled job arrives, too
		wantStored(t, first)
		wantStored(t, rest)
		if streams := f.streams.Load(); streams != 1 {
			t.Errorf("got %d streams, want 1", streams)
		}
	})
}

// The stream ends, and not the job alone.
func TestASubmissionWhoseTokenIsRevokedMeanwhileFailsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1", "b:1"}})
		var first, second fake
		first.message = func(*dtaskv1.SubmitRequest) ([]*dtaskv1.SubmitResult, error) {
			return nil, refused(codes.Unauthenticated, "the access of ci was revoked during the call")
		}
		n.serve(t, "a:1", &first)
		n.serve(t, "b:1", &second)
		_, err := c.Submit(t.Context(), oneTask(), SubmitOptions{})
		if !errors.Is(err, ErrUnauthenticated) || !strings.Contains(err.Error(), "was revoked during the call") {
			t.Errorf("got %v", err)
		}
		if one, two := first.streams.Load(), second.streams.Load(); one != 1 || two != 0 {
			t.Errorf("got %d streams and %d at the other coordinator, want 1 and none", one, two)
		}
	})
}

func TestCancelledSubmissionIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1"}})
		f := &fake{submit: storeByName(closedChannel())}
		n.serve(t, "a:1", f)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Submit(ctx, oneTask(), SubmitOptions{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		wantStored(t, submitAll(t.Context(), c, "next"))
		if calls := f.calls.Load(); calls > 2 {
			t.Errorf("got %d sent jobs", calls)
		}
	})
}

func TestStreamThatEndsIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1"}})
		var once sync.Once
		f := &fake{submit: storeByName(closedChannel()), message: func(*dtaskv1.SubmitRequest) (_ []*dtaskv1.SubmitResult, err error) {
			once.Do(func() { err = errNoInput })
			return nil, err
		}}
		n.serve(t, "a:1", f)
		wantStored(t, submitAll(t.Context(), c, some("job", 10)...))
		if streams := f.streams.Load(); streams != 2 {
			t.Errorf("got %d streams, want 2", streams)
		}
	})
}

func TestSharedStreamThatEndsFailsEachJobWithItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1"}, Timeout: 300 * time.Millisecond})
		n.serve(t, "a:1", &fake{message: func(*dtaskv1.SubmitRequest) ([]*dtaskv1.SubmitResult, error) {
			return nil, errNoInput
		}})
		for name, done := range submitAll(t.Context(), c, some("job", 7)...) {
			got := <-done
			var e *Error
			if !errors.As(got.err, &e) || !errors.Is(e, ErrUnreachable) || e.Key != "key of "+name || !e.Unknown || !strings.HasPrefix(e.Message, submitting) {
				t.Errorf("%s: got %+v", name, got)
			}
		}
	})
}

func TestSubmissionWithoutProgressGoesToAnotherCoordinator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1", "b:1"}})
		stuck := make(chan struct{})
		n.serve(t, "a:1", &fake{submit: storeByName(stuck)})
		n.serve(t, "b:1", &fake{submit: storeByName(closedChannel())})
		began := time.Now()
		wantStored(t, submitAll(t.Context(), c, "job"))
		if took := time.Since(began); took < submitTimeout || took > submitTimeout+time.Second {
			t.Errorf("got the job stored after %s, want %s", took, submitTimeout)
		}
		close(stuck)
	})
}

func TestSubmissionLeavesACoordinatorThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1", "b:1"}})
		stuck := make(chan struct{})
		hung := &fake{submit: storeByName(stuck)}
		n.serve(t, "a:1", hung)
		n.serve(t, "b:1", &fake{submit: storeByName(closedChannel())})
		began := time.Now()
		all := submitAll(t.Context(), c, some("job", 5)...)
		synctest.Wait()
		hung.frozen.Store(true)
		wantStored(t, all)
		if took := time.Since(began); took > 2500*time.Millisecond {
			t.Errorf("got the job stored after %s, want 2.5s", took)
		}
		close(stuck)
	})
}

// The message of a large job must not read its tasks after Submit has returned. The
// race detector finds such a read.
func TestJobIsNotReadAfterItsSubmissionHasReturned(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	n.serve(t, "a:1", &fake{message: func(m *dtaskv1.SubmitRequest) (results []*dtaskv1.SubmitResult, _ error) {
		for _, p := range m.GetParts() { // answered at the first part
			results = append(results, resultOf(p.GetJob())(nil, errFaulty))
		}
		return results, nil
	}})
	for range 5 {
		job := oneTask()
		for i := range 2000 {
			job.Tasks = append(job.Tasks, &dtaskv1.TaskSpec{Id: fmt.Sprint(i), Body: &dtaskv1.TaskBody{Payload: make([]byte, 2000)}})
		}
		if _, err := c.Submit(t.Context(), job, SubmitOptions{}); !errors.Is(err, ErrInvalid) {
			t.Fatal(err)
		}
		for _, task := range job.GetTasks() {
			task.Id = "changed"
			task.Body = nil
		}
	}
}

func TestResultWithoutAJobOrAnErrorIsAnError(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	n.serve(t, "a:1", &fake{message: func(m *dtaskv1.SubmitRequest) ([]*dtaskv1.SubmitResult, error) {
		return []*dtaskv1.SubmitResult{{Job: m.GetParts()[0].GetJob() + 7}, {Job: m.GetParts()[0].GetJob(), Code: int32(codes.OK)}}, nil
	}})
	if _, err := c.Submit(t.Context(), oneTask(), SubmitOptions{}); err == nil {
		t.Error("got no error")
	}
}
