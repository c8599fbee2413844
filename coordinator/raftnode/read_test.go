package raftnode

import "testing"

// A round that began while raft stops would never end: raft drops what its queues contain.
func TestNoRoundOfReadsBeginsOnceTheNodeCloses(t *testing.T) {
	t.Parallel()
	for range 100 { // of two ready channels, select takes either
		closing := make(chan struct{})
		close(closing)
		r := &reader{closing: closing, wake: make(chan struct{}, 1), next: &readRound{done: make(chan struct{})}}
		r.wake <- struct{}{}
		r.run()
		if n := r.rounds.Load(); n != 0 {
			t.Fatalf("%d rounds began", n)
		}
	}
}
