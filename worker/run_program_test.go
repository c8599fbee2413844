package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/worker/process"
)

func TestAProgramThatIsBusyForAMomentIsTriedAgain(t *testing.T) {
	t.Parallel()
	busy := &process.StartError{Path: "tool", Err: syscall.ETXTBSY}
	for name, c := range map[string]struct {
		busyFor   time.Duration
		cancelled bool
		want      error
		tries     int
	}{
		"not busy":       {tries: 1},
		"for a moment":   {busyFor: 3 * time.Millisecond, tries: 3},
		"forever":        {busyFor: time.Hour, want: syscall.ETXTBSY, tries: 10},
		"until it ended": {busyFor: time.Hour, cancelled: true, want: context.Canceled, tries: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				tries, began := 0, time.Now()
				_, err := whileBusy(ctx, func() (process.Exit, error) {
					tries++
					switch {
					case ctx.Err() != nil:
						return process.Exit{}, ctx.Err()
					case time.Since(began) >= c.busyFor:
						return process.Exit{}, nil
					case c.cancelled:
						cancel()
					}
					return process.Exit{}, busy
				})
				if !errors.Is(err, c.want) || tries != c.tries {
					t.Errorf("got %v after %d tries, want %v after %d", err, tries, c.want, c.tries)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// Another worker may have the program.
func TestAProgramThatStaysBusyIsNotStarted(t *testing.T) {
	t.Parallel()
	tool := filepath.Join(t.TempDir(), "tool")
	file, err := os.OpenFile(tool, os.O_WRONLY|os.O_CREATE, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	withLeader(t, Config{Slots: 1}, func(b *harness, l *leaderEnd) {
		l.assign(b.t, work{task: 1, body: &dtaskv1.TaskBody{Command: []string{tool}}})
		o := l.outcomes(b.t, 1)[1]
		if o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED || !strings.Contains(o.GetError(), "text file busy") {
			t.Errorf("got %v, want not started: text file busy", o)
		}
	})
}
