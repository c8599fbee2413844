package cli

import (
	"context"
	"strings"
	"testing"
)

// Each screen overwrites the one before, line by line, and has the rates since then.
func TestTopRefreshesTheScreen(t *testing.T) {
	t.Parallel()
	addr, done, err := newFakeLeader().serve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	a, _, _ := setup(t, map[string]string{"DTASK_ADDR": addr})
	out := &signalWriter{text: "1.0s", seen: make(chan struct{})}
	a.out = out
	c, err := a.newClient(a.timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1) // one result
	go func() { ended <- a.refresh(ctx, c) }()
	<-out.seen
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	screens := strings.Split(out.String(), cursorHome)
	last := screens[len(screens)-1]
	if len(screens) < 4 || !strings.Contains(last, "\n1.0s                 5.0     500  ") || !strings.HasSuffix(last, "Ctrl-C ends."+eraseLine+eraseScreen) {
		t.Errorf("got %d screens, the last one is %q", len(screens), last)
	}
	if strings.Count(last, "\n") != strings.Count(last, eraseLine) {
		t.Errorf("a line is not erased: %q", last)
	}
}
