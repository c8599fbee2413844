//go:build unix

package program_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/program"
)

// hangUpVariable makes the test a process that hangs up twice.
const hangUpVariable = "DTASK_TEST_HANG_UP"

// A closed terminal sends SIGHUP, usually twice, and at any time: the second one must not end
// a process that has stopped and still cleans up.
func TestASecondHangUpDoesNotInterruptTheEndOfAProcess(t *testing.T) {
	if os.Getenv(hangUpVariable) != "" {
		ctx, stop := program.UntilSignal(t.Context(), slog.New(slog.DiscardHandler))
		hangUp(t)
		<-ctx.Done()
		stop()
		hangUp(t)
		time.Sleep(time.Second) // the signal comes at any time
		fmt.Println("cleaned up")
		return
	}
	// If the tests run under nohup, the process would ignore SIGHUP, too. Signals that a
	// process handles have their default effect in its children.
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP)
	defer signal.Stop(hangUps)
	again := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.timeout=5m")
	again.Env = append(os.Environ(), hangUpVariable+"=1")
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "cleaned up") {
		t.Errorf("%v\n%s", err, out)
	}
}

func hangUp(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}
