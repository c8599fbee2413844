package client

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// goAtOnce is how many submissions are on their way before others wait and share a call:
	// enough that a coordinator always has the next one, and no more, since a call
	// costs both ends more than a small job.
	goAtOnce = 4
	// mostWait is how long a submission waits to share a call while none comes back:
	// longer than any that is answered takes.
	mostWait = time.Second
	// jointTasks is the most tasks of a job that shares a call.
	jointTasks = 100
)

// A joint lets small jobs that many goroutines submit at the same time share calls. A submission
// goes at once while few are on their way; what comes then waits for one of these to be
// answered, and goes in one call with all that waited. Safe for concurrent use.
type joint struct {
	mu      sync.Mutex // guards what follows
	running int        // calls on their way
	waiting []*joined  // in the order in which they came
}

// A joined is a submission that waits for its call, or for the answer to that. Whoever takes it
// out of joint.waiting sends into one of its channels.
type joined struct {
	place

	turn chan struct{} // size 1: to make the next call falls to it
	sent chan outcome  // size 1: another one has made the call
}

// An outcome is what became of a job whose call another submission made.
type outcome struct {
	SubmitResult

	alone bool // the call settled nothing for this one: it goes by itself
}

// enter tells a submission what to do: go at once (nil), or wait. Each that goes ends with leave.
func (t *joint) enter(p place) *joined {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running < goAtOnce {
		t.running++
		return nil
	}
	j := &joined{place: p, turn: make(chan struct{}, 1), sent: make(chan outcome, 1)}
	t.waiting = append(t.waiting, j)
	return j
}

// leave ends a call: who has waited longest makes the next one.
func (t *joint) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.running--
		return
	}
	t.waiting[0].turn <- struct{}{}
	t.waiting = t.waiting[1:]
}

// withdraw takes back a submission that waits, and tells whether it still did.
func (t *joint) withdraw(j *joined) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting, j)
	if i < 0 {
		return false
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	return true
}

// hurry is withdraw for one that waits no longer, and goes at once.
func (t *joint) hurry(j *joined) bool {
	if !t.withdraw(j) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running++
	return true
}

// company takes what waits and fits into a call with a job.
func (t *joint) company(of *joined) []*joined {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, size := 0, of.size
	for n < len(t.waiting) && n+1 < manyJobs && size+t.waiting[n].size <= chunkBytes {
		size += t.waiting[n].size
		n++
	}
	taken := slices.Clone(t.waiting[:n])
	t.waiting = t.waiting[n:]
	return taken
}

// share submits a small job in a call that it shares with others, if many are on their way.
func (c *Client) share(ctx context.Context, p place) SubmitResult {
	j := c.joint.enter(p)
	if j == nil {
		defer c.joint.leave()
		return c.alone(ctx, p)
	}
	got, sent := c.joint.await(ctx, j)
	switch {
	case !sent:
		defer c.joint.leave()
		return c.together(ctx, j)
	case got.alone:
		return c.alone(ctx, p)
	}
	return got.SubmitResult
}

// await waits until another submission has sent this one, or it falls to this one to make
// the next call, which then ends with leave.
func (t *joint) await(ctx context.Context, j *joined) (got outcome, sent bool) {
	late := time.NewTimer(mostWait)
	defer late.Stop()
	for {
		select {
		case <-j.turn:
			return outcome{}, false
		case got := <-j.sent:
			return got, true
		case <-late.C:
			if t.hurry(j) {
				return outcome{}, false
			}
		case <-ctx.Done():
			if !t.withdraw(j) {
				select {
				case <-j.turn: // it falls to the next
					t.leave()
				default: // it is being sent, and what becomes of it is not known
				}
			}
			return outcome{SubmitResult: SubmitResult{Err: fmt.Errorf("%s: %w", submitting, context.Cause(ctx))}}, true
		}
	}
}

// together makes a call for a job and all that wait with it.
func (c *Client) together(ctx context.Context, first *joined) SubmitResult {
	others := c.joint.company(first)
	if len(others) == 0 {
		return c.alone(ctx, first.place)
	}
	m := many{c: c, left: []place{first.place}, results: make([]SubmitResult, 1+len(others))}
	for i, j := range others {
		p := j.place
		p.at = i + 1
		m.left = append(m.left, p)
	}
	err := c.do(ctx, operation{name: submitting, limit: submitLimit, run: func(ctx context.Context, t try) error {
		_, err := m.try(ctx, t)
		return err
	}})
	unsettled := make([]bool, len(m.results))
	for _, p := range m.left {
		unsettled[p.at] = true
		m.results[p.at].Err = keyed(err, p.r.GetIdempotencyKey())
	}
	// What has no answer goes alone, so that nobody waits for it: its owner may have to wait, or
	// whoever made the call left in the middle of it.
	again := err == nil || ctx.Err() != nil
	for i, j := range others {
		j.sent <- outcome{SubmitResult: m.results[i+1], alone: again && unsettled[i+1]}
	}
	if again && unsettled[0] && ctx.Err() == nil {
		return c.alone(ctx, first.place)
	}
	return m.results[0]
}

// keyed adds a job's key to an error with which it may be submitted again.
func keyed(err error, key string) error {
	if e, ok := err.(*Error); ok && e.Key == "" && (e.Kind == ErrUnreachable || e.Kind == ErrBusy) { //nolint:errorlint // those of do, which are not wrapped
		with := *e
		with.Key = key
		return &with
	}
	return err
}

// alone submits a small job in a call of its own: one message each way, which takes half as long
// as a stream for it.
func (c *Client) alone(ctx context.Context, p place) SubmitResult {
	got, err := c.sendAll(ctx, p.r.GetIdempotencyKey(), submitLimit, func(ctx context.Context, t try) (*dtaskv1.SubmitResponse, error) {
		resp, err := t.jobs().SubmitMany(ctx, &dtaskv1.SubmitManyRequest{Jobs: []*dtaskv1.SubmitRequest{p.r}})
		if err != nil {
			return nil, err
		}
		if n := len(resp.GetAnswers()); n != 1 {
			return nil, status.Errorf(codes.Internal, "%d answers for a job", n)
		}
		return resp.GetAnswers()[0].GetStored(), refused(resp.GetAnswers()[0])
	})
	return SubmitResult{Submitted: got, Err: err}
}
