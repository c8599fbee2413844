package exitstatus_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dtask/dtask/internal/exitstatus"
)

func TestSignalsHaveTheNumbersOfLinux(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 31; n++ {
		s := exitstatus.Status{Signal: unix.SignalName(unix.Signal(n))}
		if parsed, ok := exitstatus.Parse(s.String()); !ok || parsed != s || s.ExitCode() != 128+n {
			t.Errorf("signal %d: got %+v, %t, exit code %d", n, parsed, ok, s.ExitCode())
		}
	}
}
