package clustertest

import (
	"testing"
	"time"
)

func TestAStallIsCountedOnceAndAShortPauseIsNot(t *testing.T) {
	t.Parallel()
	s := &Stalls{last: time.Now().Add(-3 * time.Second)}
	lost := s.Lost()
	if lost < 2900*time.Millisecond || lost > time.Minute {
		t.Errorf("a stall of 3 s counts as %v", lost)
	}
	s.mu.Lock()
	s.last = time.Now().Add(-hiccup / 2)
	s.mu.Unlock()
	if again := s.Lost(); again != lost {
		t.Errorf("a hiccup made %v of %v", again, lost)
	}
}
