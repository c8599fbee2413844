package api

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A slowWriter takes a time for each call, which is virtual in these tests.
type slowWriter struct{ each time.Duration }

func (w slowWriter) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, errors.New("nothing to write")
	}
	time.Sleep(w.each)
	return len(b), nil
}

func TestABackupLeavesHalfOfAProcessorToTasks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		each, want time.Duration
	}{
		{"as long as it took", 4 * time.Millisecond, 10 * 8 * time.Millisecond},
		{"not longer for a slow reader", time.Second, 10 * (time.Second + maxYield)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				y := yielding(t.Context(), slowWriter{c.each / 2})
				for range 10 * 2 {
					if n, err := y.Write(make([]byte, messageBytes/2)); n != messageBytes/2 || err != nil {
						t.Fatalf("got %d, %v", n, err)
					}
				}
				if took := time.Since(began); took != c.want {
					t.Errorf("it took %v, want %v", took, c.want)
				}
			})
		})
	}
}

func TestABackupThatEndsDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		y := yielding(ctx, slowWriter{time.Millisecond})
		end()
		began := time.Now()
		if _, err := y.Write(make([]byte, messageBytes)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if _, err := y.Write(nil); err == nil {
			t.Error("the error of the writer is lost")
		}
	})
}
