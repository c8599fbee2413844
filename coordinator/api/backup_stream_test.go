package api

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// slowCaller reads a message of a backup after a pause; never after its call has ended.
func slowCaller(ctx context.Context, pause time.Duration) func(*dtaskv1.BackupResponse) error {
	return func(*dtaskv1.BackupResponse) error {
		select {
		case <-time.After(pause):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// It would keep the replica from writing any other backup, and the memory of the fork.
func TestABackupThatNobodyReadsEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		call, end := context.WithCancel(t.Context())
		defer end() // as gRPC does when the method returns
		s := &backupStream{ctx: t.Context(), send: slowCaller(call, time.Hour)}
		began := time.Now()
		if _, err := s.Write(make([]byte, backupMessage)); !errors.Is(err, errBackupStalled) {
			t.Errorf("got %v, want %v", err, errBackupStalled)
		}
		if waited := time.Since(began); waited != backupStallTimeout {
			t.Errorf("it ended after %v, want %v", waited, backupStallTimeout)
		}
		if _, err := s.Write(make([]byte, backupMessage)); !errors.Is(err, errBackupStalled) {
			t.Errorf("after that: got %v", err)
		}
		if waited := time.Since(began); waited != backupStallTimeout {
			t.Errorf("another message was sent: %v", waited)
		}
	})
}

func TestABackupThatIsReadSlowlyContinues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &backupStream{ctx: t.Context(), send: slowCaller(t.Context(), backupStallTimeout-time.Second)}
		for range 10 {
			if _, err := s.Write(make([]byte, backupMessage)); err != nil {
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
		s := &backupStream{ctx: stopping, send: slowCaller(call, time.Hour)}
		time.AfterFunc(time.Second, func() { stop(why) })
		if _, err := s.Write(make([]byte, backupMessage)); !errors.Is(err, why) {
			t.Errorf("got %v, want %v", err, why)
		}
	})
}
