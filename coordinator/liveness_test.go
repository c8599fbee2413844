package coordinator_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/spec"
)

// A watchdog restarts a replica whose state machine hangs: somebody reads the state and
// never returns, so that no entry can be applied.
func TestAReplicaWhoseStateMachineHangsIsNotAlive(t *testing.T) {
	t.Parallel()
	const interval = 5 * time.Millisecond
	alive := make(chan struct{}) // without a size: what is received was sent after the receive began
	var machine *fsm.Machine
	c, stop := runWith(t, coordinator.Config{
		DataDir: t.TempDir(), MinFree: &coordinator.MinFree{}, HTTP: "127.0.0.1:0", AliveInterval: interval,
		Alive: func() {
			select {
			case alive <- struct{}{}:
			default:
			}
		},
		Seams: coordinator.Seams{HTTP: func(next http.Handler, i coordinator.Internals) http.Handler {
			machine = i.Machine
			return next
		}},
	})
	defer stop()
	job, err := spec.Single(spec.SingleTask{Type: "noop", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Submit(t.Context(), job, client.SubmitOptions{Key: "before"}); err != nil {
		t.Fatal(err)
	}
	<-alive // with a leader, and nothing to do

	reading, release := make(chan struct{}), make(chan struct{})
	go machine.Read(func(*fsm.State, uint64) {
		close(reading)
		<-release
	})
	<-reading
	submitted := make(chan error, 1)
	go func() {
		_, err := c.Submit(t.Context(), job, client.SubmitOptions{Key: "after"})
		submitted <- err
	}()
	deadline := time.After(2 * time.Minute)
	for quiet := false; !quiet; { // alive until the entry is about to be applied
		select {
		case <-alive:
		case <-time.After(100 * interval):
			quiet = true
		case <-deadline:
			t.Fatal("a replica that applies nothing is alive")
		}
	}
	close(release)
	<-alive
	if err := <-submitted; err != nil {
		// The leader's own watchdog may have ended its term meanwhile.
		t.Logf("submitting: %v", err)
	}
}
