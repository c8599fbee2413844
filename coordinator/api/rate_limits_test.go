package api

import (
	"crypto/rand"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ownedJob is a submission with an owner.
func ownedJob(key, owner string) *dtaskv1.JobPart {
	h := header("x")
	h.Owner = owner
	return request(key, h, task("a"))
}

func TestOwnerAboveTheRateLimitGetsARetryDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, func(c *Config) { c.SubmitRate, c.SubmitBurst = 2, 3 })
		submit := func(key, owner string) error { _, err := r.send(t.Context(), ownedJob(key, owner)); return err }
		for i := range 3 {
			if err := submit(fmt.Sprint("k", i), "me"); err != nil {
				t.Fatalf("job %d of the burst: %v", i, err)
			}
		}
		for range 2 { // rejected submissions take no token
			err := submit("k3", "me")
			if d := wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY); d.GetRetryAfterMs() != 500 {
				t.Errorf("got retry delay %d ms, want 500", d.GetRetryAfterMs())
			}
			if want := `owner "me" exceeds 2 jobs per second`; !strings.Contains(err.Error(), want) {
				t.Errorf("got %q, want it to contain %q", err, want)
			}
		}
		if err := submit("k0", "me"); err != nil {
			t.Errorf("a stored job: got %v", err)
		}
		if err := submit("yours", "you"); err != nil {
			t.Errorf("another owner: got %v", err)
		}
		if r.leader.submits != 5 {
			t.Errorf("got %d calls of the leader, want 5", r.leader.submits)
		}
		time.Sleep(500 * time.Millisecond)
		if err := submit("k3", "me"); err != nil {
			t.Errorf("after the pause: got %v", err)
		}
		if err := submit("k4", "me"); err == nil {
			t.Error("a second job after the pause: got no error")
		}
		if got := r.Refused(); got["rate"] != 3 {
			t.Errorf("got counts %v, want 3 by rate", got)
		}
	})
}

func TestInvalidJobTakesNoToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, func(c *Config) { c.SubmitRate = 0.05 })
		bad := ownedJob("k", "me")
		bad.Header.Priority = 99
		_, err := r.send(t.Context(), bad)
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
		if _, err := r.send(t.Context(), ownedJob("k", "me")); err != nil {
			t.Errorf("burst of at least 1: got %v", err)
		}
		_, err = r.send(t.Context(), ownedJob("l", "me"))
		if d := wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY); d.GetRetryAfterMs() != 20_000 {
			t.Errorf("got retry delay %d ms, want 20000", d.GetRetryAfterMs())
		}
	})
}

func TestBucketsAreBoundedAndFullOnesRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newRateLimits(1, 1)
		take := func(owner string, want bool) {
			t.Helper()
			if err := l.take("", owner); (err == nil) != want {
				t.Errorf("%s: %v", owner, err)
			}
		}
		for i := range maxBuckets {
			take(fmt.Sprint("owner", i), true)
		}
		take("late", true)
		take("later", false) // shares a bucket with late
		if len(l.buckets) != maxBuckets {
			t.Errorf("got %d buckets, want %d", len(l.buckets), maxBuckets)
		}
		time.Sleep(time.Second)
		take("later", true)
		take("latest", true)
		if len(l.buckets) != 2 {
			t.Errorf("after a rest: got %d buckets, want 2", len(l.buckets))
		}
	})
}

func TestUnlimitedRateKeepsNoBuckets(t *testing.T) {
	t.Parallel()
	l := newRateLimits(0, 1)
	for range 100 {
		if err := l.take("", "me"); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.buckets) != 0 {
		t.Errorf("got %d buckets, want 0", len(l.buckets))
	}
}

func TestLimitsOutOfRangeAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{SubmitRate: -1}, {SubmitRate: MaxSubmitRate + 1}, {SubmitBurst: -1}} {
		c.Defaults()
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "Submit") {
			t.Errorf("rate %v, burst %d: %v", c.SubmitRate, c.SubmitBurst, err)
		}
	}
}

func TestOverloadedLeaderReturnsARetryDelay(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.mixed(t, "j", task("a"), task("b", 0))
	w := r.worker(t)
	dead := r.submit(t, "dead", task("a"))
	r.fails(t, held(dead, 0, 1, w), fsm.NextDead, "exit 1")
	r.leader.fail = &sequencer.BusyError{What: "too many requests wait", Limit: sequencer.LimitInbox, RetryAfter: 100 * time.Millisecond}
	before := r.machine.Index()
	for name, call := range map[string]func() error{
		"submit": func() error { _, err := r.send(t.Context(), ownedJob("k", "me")); return err },
		"retry": func() error {
			_, err := r.jobs.Retry(t.Context(), &dtaskv1.RetryRequest{Job: fmt.Sprint(dead), IdempotencyKey: rand.Text()})
			return err
		},
		"update": func() error {
			_, err := r.jobs.Update(t.Context(), &dtaskv1.UpdateRequest{Job: "1", TimeoutMs: 1000, IdempotencyKey: "u"})
			return err
		},
		"cancel a job": func() error { _, err := r.jobs.Cancel(t.Context(), &dtaskv1.CancelRequest{Job: "1"}); return err },
		"cancel a task": func() error {
			_, err := r.jobs.Cancel(t.Context(), &dtaskv1.CancelRequest{Job: "1", Task: "a"})
			return err
		},
		"purge": func() error {
			_, err := r.jobs.PurgeDeadLetters(t.Context(), &dtaskv1.PurgeDeadLettersRequest{Job: fmt.Sprint(dead), IdempotencyKey: rand.Text()})
			return err
		},
		"drain": func() error {
			_, err := r.admin.DrainWorker(t.Context(), &dtaskv1.DrainWorkerRequest{Name: "w1"})
			return err
		},
	} {
		d := wantError(t, call(), codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
		if d.GetRetryAfterMs() != 100 {
			t.Errorf("%s: got retry delay %d ms, want 100", name, d.GetRetryAfterMs())
		}
	}
	if r.machine.Index() != before {
		t.Error("the state changed, want no change")
	}
	want := map[string]uint64{"rate": 0, "uploads": 0, "inbox": 1, "memory": 0, "disk": 0, "other": 0}
	if got := r.Refused(); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}
