package cli

import (
	"strings"
	"testing"
)

// The hint of an interrupted command continues after the last event that was printed.
func TestInterruptedEventsSayHowToContinue(t *testing.T) {
	t.Parallel()
	addr, done, err := newFakeLeader().serve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	a, _, stderr := setup(t, map[string]string{"DTASK_ADDR": addr})
	out := &signalWriter{text: "cluster.level", seen: make(chan struct{})}
	a.out = out
	interruptWhen(t, a, out.seen, "events", "--follow")
	if !strings.Contains(stderr.String(), "hint: to continue, run dtaskctl events --follow --since 19\n") {
		t.Errorf("got %s", stderr)
	}
}
