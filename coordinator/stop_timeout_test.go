package coordinator

import (
	"testing"
	"time"
)

// A leader without a quorum answers its last requests after two heartbeats.
func TestAnOrderlyStopOutlastsTwoHeartbeats(t *testing.T) {
	t.Parallel()
	for heartbeat, want := range map[time.Duration]time.Duration{0: 5 * time.Second, time.Second: 5 * time.Second, 15 * time.Second: 45 * time.Second} {
		if got := (&Config{RaftHeartbeat: heartbeat, TimeScale: 1}).stopTimeout(); got != want {
			t.Errorf("with a heartbeat of %v: got %v, want %v", heartbeat, got, want)
		}
	}
}
