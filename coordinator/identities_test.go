package coordinator

import (
	"testing"
	"time"
)

func TestAReplicaIsIsolatedUnlessItLeadsOrHasHeardOfALeader(t *testing.T) {
	t.Parallel()
	const after = time.Hour
	now := time.Now()
	long, short := now.Add(-2*after), now.Add(-after/2)
	for _, c := range []struct {
		what             string
		state            string
		started, contact time.Time
		want             bool
	}{
		{"the leader", "leader", long, time.Time{}, false},
		{"a follower", "follower", long, short, false},
		{"a follower that has lost its leader", "follower", long, long, true},
		{"a candidate of a short election", "candidate", long, short, false},
		{"a candidate that wins none", "candidate", long, long, true},
		{"a replica that has just started", "candidate", short, time.Time{}, false},
		{"a replica that has found no leader", "follower", long, time.Time{}, true},
	} {
		if got := isIsolated(c.state, c.started, c.contact, after); got != c.want {
			t.Errorf("%s: isolated %t", c.what, got)
		}
	}
}
