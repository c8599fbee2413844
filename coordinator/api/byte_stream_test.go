package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slowCaller reads a message of a backup after a pause; never after its call has ended.
func slowCaller(ctx context.Context, pause time.Duration) func([]byte) error {
	return func([]byte) error {
		select {
		case <-time.After(pause):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// isStalled reports whether an error is that of a caller that does not read.
func isStalled(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == KindRefused && strings.Contains(e.Message, "the backup was not read for 1m0s")
}

// It would keep the replica from writing any other backup, and the memory of the fork.
func TestABackupThatNobodyReadsEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		call, end := context.WithCancel(t.Context())
		defer end() // as gRPC does when the method returns
		s := &byteStream{what: "backup", ctx: t.Context(), send: slowCaller(call, time.Hour)}
		began := time.Now()
		if _, err := s.Write(make([]byte, messageBytes)); !isStalled(err) {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(began); waited != streamStallTimeout {
			t.Errorf("it ended after %v, want %v", waited, streamStallTimeout)
		}
		if _, err := s.Write(make([]byte, messageBytes)); !isStalled(err) {
			t.Errorf("after that: got %v", err)
		}
		if waited := time.Since(began); waited != streamStallTimeout {
			t.Errorf("another message was sent: %v", waited)
		}
	})
}

func TestABackupThatIsReadSlowlyContinues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &byteStream{what: "backup", ctx: t.Context(), send: slowCaller(t.Context(), streamStallTimeout-time.Second)}
		for range 10 {
			if _, err := s.Write(make([]byte, messageBytes)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestABackupEndsWithItsReplica(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		call, end := context.WithCancel(t.Context())
		defer end()
		stopping, stop := context.WithCancelCause(t.Context())
		why := errors.New("stopping")
		s := &byteStream{what: "backup", ctx: stopping, send: slowCaller(call, time.Hour)}
		time.AfterFunc(time.Second, func() { stop(why) })
		if _, err := s.Write(make([]byte, messageBytes)); !errors.Is(err, why) {
			t.Errorf("got %v, want %v", err, why)
		}
	})
}
