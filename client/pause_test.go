package client

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestCallerWaitsAtMostAQuarterLongerThanTheElection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, w := newRetryLoop(t.Context(), time.Hour, operation{})
		defer w.end()
		began := time.Now()
		for time.Since(began) < 2*time.Minute {
			before := time.Since(began)
			w.pause(ctx)
			if took := time.Since(began) - before; took > 3*minPause/2+before*3/4 || took > 3*maxPause/2 {
				t.Errorf("got a pause of %v after %v", took, before)
			}
		}
	})
}

func TestBackoffDoublesDuringOverload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, w := newRetryLoop(t.Context(), time.Hour, operation{})
		defer w.end()
		for want := minPause; want < maxPause; want *= 2 {
			w.note("a:1", classifiedError{full: true})
			began := time.Now()
			w.pause(ctx)
			if took := time.Since(began); took < want/2 || took > want*3/2 {
				t.Errorf("got a pause of %v, want about %v", took, want)
			}
		}
	})
}

func TestABusyClusterIsNotAskedAgainRightBeforeTheTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout, took = time.Second, 50 * time.Millisecond
		for range 100 {
			began := time.Now()
			ctx, w := newRetryLoop(t.Context(), timeout, operation{})
			w.fullAt, w.took = "a:1", took
			for w.pause(ctx) {
				if left := timeout - time.Since(began); left < slowerAtMost*took {
					t.Errorf("another attempt begins %s before the timeout, and the one before took %s", left, took)
				}
				time.Sleep(took)
			}
			if waited := time.Since(began); waited != timeout {
				t.Errorf("gave up after %s", waited)
			}
			w.end()
		}
	})
}
