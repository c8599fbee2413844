package worker

import (
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Stats are counts since the worker started, and its present load.
type Stats struct {
	Received   uint64 // attempts
	Succeeded  uint64
	Failed     uint64
	TimedOut   uint64
	Cancelled  uint64
	Released   uint64 // handed back
	NotStarted uint64
	Superseded uint64 // stops and verdicts that said so
	Sessions   uint64 // that were welcomed
	Running    int    // attempts at this moment
	Unsettled  int    // outcomes not yet acknowledged
}

func (s *Stats) count(kind dtaskv1.OutcomeKind) {
	switch kind {
	case dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED:
		s.Succeeded++
	case dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED:
		s.Failed++
	case dtaskv1.OutcomeKind_OUTCOME_KIND_TIMED_OUT:
		s.TimedOut++
	case dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED:
		s.Cancelled++
	case dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED:
		s.Released++
	case dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED:
		s.NotStarted++
	case dtaskv1.OutcomeKind_OUTCOME_KIND_UNSPECIFIED:
	}
}

func (t *attemptTable) snapshot() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Running, s.Unsettled = t.running, len(t.outcomes)
	return s
}

func (t *attemptTable) countSuperseded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Superseded++
}

func (t *attemptTable) sessionOpened() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.connected, t.goodbyeAnswered = true, false
	t.stats.Sessions++
}

func (t *attemptTable) sessionEnded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.connected = false
	t.signalIdle()
}

// farewellHeard notes that the leader knows that this worker leaves, so that
// what it had sent before has arrived.
func (t *attemptTable) goodbyeReceived() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.goodbyeAnswered = true
	t.signalIdle()
}

func (t *attemptTable) isDraining() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.draining
}

// still reports whether no executor runs.
func (t *attemptTable) still() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running == 0
}

// settled reports whether nothing is left to be said or heard.
func (t *attemptTable) settled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running == 0 && len(t.outcomes) == 0 && (t.goodbyeAnswered || !t.connected)
}

// longestGrace is the longest kill grace of what runs.
func (t *attemptTable) longestGrace() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var longest time.Duration
	for _, a := range t.known {
		if a.phase == phaseRunning || a.phase == phaseCommitted {
			longest = max(longest, time.Duration(a.policy.GetKillGraceMs())*time.Millisecond)
		}
	}
	return longest
}
