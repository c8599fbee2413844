package worker

import (
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Stats counts events since the worker started, and describes its current load.
type Stats struct {
	Received   uint64 // attempts assigned
	Succeeded  uint64
	Failed     uint64
	TimedOut   uint64
	Cancelled  uint64
	Released   uint64 // returned without counting as a retry
	NotStarted uint64
	Superseded uint64 // attempts replaced by a later one
	Sessions   uint64 // sessions opened
	Connected  bool   // a session is open
	Slots      int    // attempts that may run concurrently
	Running    int    // attempts running now
	Queued     int    // attempts that have not started
	Unsettled  int    // outcomes not yet acknowledged

	SupervisorsStarted uint64
	SupervisorsLost    uint64 // could not be started, or ended unexpectedly

	OutputBytes        int64  // on disk, about
	OutputDroppedBytes uint64 // could not be stored
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
	s.Connected, s.Slots, s.Running, s.Unsettled = t.connected, t.slots, t.running, len(t.outcomes)
	s.Queued = max(0, len(t.known)-len(t.outcomes)-t.running) // a known attempt is held or has an outcome
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

// goodbyeReceived records that the leader knows that this worker leaves, and so
// has received everything that was sent before.
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

// isIdle reports whether no executor runs.
func (t *attemptTable) isIdle() bool {
	running, _ := t.counts()
	return running == 0
}

// settled reports whether no attempt runs, all outcomes are acknowledged, and
// the leader, if any, knows that this worker leaves.
func (t *attemptTable) settled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running == 0 && len(t.outcomes) == 0 && (t.goodbyeAnswered || !t.connected)
}

// longestGrace returns the longest kill grace of all running attempts.
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
